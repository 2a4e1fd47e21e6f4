// SPDX-License-Identifier: BSD-3-Clause
#include "endpoint.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <netdb.h>

#include <cstring>
#include <memory>
#include <string>
#include <system_error>

#include "error.hpp"

namespace switchml::udp {
namespace {

constexpr std::uint32_t kLoopbackNet = 0x7F000000;      // 127.0.0.0/8
constexpr std::uint32_t kLoopbackWorkers = 0x7F005300;  // 127.0.83.0, workers at rank + 1
constexpr std::uint16_t kDiscardPort = 9;               // any port: connecting UDP sends nothing
constexpr int kClientTtl = 128;                         // what published clients use

std::uint32_t resolve_ipv4(const std::string &host) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    if (code != 0 || found == nullptr) {
        throw Error(SWITCHML_EUNREACHABLE, "the controller's host '" + host + "' has no IPv4 address: " +
                                               gai_strerror(code) + "; check SWITCHML_CONTROLLER");
    }
    return wire::to_endpoint(*reinterpret_cast<const sockaddr_in *>(found->ai_addr)).ipv4;
}

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

InterfaceList list_interfaces() {
    ifaddrs *first = nullptr;
    if (getifaddrs(&first) != 0) first = nullptr;
    return {first, freeifaddrs};
}

const char *interface_of(const ifaddrs *first, std::uint32_t local_address) {
    for (const ifaddrs *it = first; it != nullptr; it = it->ifa_next) {
        if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != AF_INET) continue;
        if (wire::to_endpoint(*reinterpret_cast<const sockaddr_in *>(it->ifa_addr)).ipv4 == local_address)
            return it->ifa_name;
    }
    return nullptr;
}

Error bind_error(const std::system_error &error, const wire::Endpoint &wanted) {
    const std::string what = error.what();
    if (error.code().value() == EADDRINUSE) {
        return {SWITCHML_EIO, what +
                                  "; another worker or program has it: set SWITCHML_WORKER_PORT (the same on all "
                                  "workers), or SWITCHML_LOCAL_ADDRESS where several workers share a host"};
    }
    if (error.code().value() == EADDRNOTAVAIL) {
        return {SWITCHML_ECONFIG, what + "; SWITCHML_LOCAL_ADDRESS must be an address of this host, and " +
                                      wire::ipv4_text(wanted.ipv4) + " is none"};
    }
    return {SWITCHML_EIO, what};
}

}  // namespace

std::uint32_t choose_local_address(const Settings &settings) {
    if (settings.local_address) return *settings.local_address;
    const std::uint32_t controller = resolve_ipv4(settings.controller_host);
    wire::UdpSocket probe({INADDR_ANY, 0}, kClientTtl);
    try {
        probe.connect({controller, kDiscardPort});
    } catch (const std::system_error &error) {
        throw Error(SWITCHML_EUNREACHABLE, std::string("no route to the controller: ") + error.what());
    }
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (getsockname(probe.fd(), reinterpret_cast<sockaddr *>(&address), &size) != 0) {
        throw Error(SWITCHML_EIO, std::string("cannot read a socket's address: ") + std::strerror(errno));
    }
    const std::uint32_t routed = wire::to_endpoint(address).ipv4;
    const bool loopback = (routed & 0xFF000000U) == kLoopbackNet;
    return loopback ? kLoopbackWorkers + settings.rank + 1 : routed;
}

std::vector<wire::UdpSocket> bind_sockets(const Settings &settings, std::uint32_t local_address) {
    std::vector<wire::UdpSocket> sockets;
    for (std::uint32_t thread = 0; thread < settings.num_threads; ++thread) {
        const wire::Endpoint local{local_address, static_cast<std::uint16_t>(settings.worker_port + thread)};
        try {
            sockets.emplace_back(local, kClientTtl);
        } catch (const std::system_error &error) {
            throw bind_error(error, local);
        }
    }
    return sockets;
}

std::uint64_t hardware_address(std::uint32_t local_address) {
    const InterfaceList interfaces = list_interfaces();
    const char *name = interface_of(interfaces.get(), local_address);
    if (name == nullptr) return 0;
    for (const ifaddrs *it = interfaces.get(); it != nullptr; it = it->ifa_next) {
        if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != AF_PACKET || std::strcmp(it->ifa_name, name) != 0)
            continue;
        const auto *link = reinterpret_cast<const sockaddr_ll *>(it->ifa_addr);
        std::uint64_t mac = 0;
        for (int i = 0; i < 6; ++i) mac = mac << 8 | link->sll_addr[i];
        return mac;
    }
    return 0;
}

}  // namespace switchml::udp
