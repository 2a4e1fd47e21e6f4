// SPDX-License-Identifier: BSD-3-Clause
#include "local_address.hpp"

#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>

#include "error.hpp"
#include "wire/packet.hpp"
#include "wire/udp_socket.hpp"

namespace switchml {
namespace {

constexpr std::uint32_t kLoopbackNet = 0x7F000000;      // 127.0.0.0/8
constexpr std::uint32_t kLoopbackWorkers = 0x7F005300;  // 127.0.83.0, workers at rank + 1
constexpr std::uint16_t kDiscardPort = 9;               // any port: connecting UDP sends nothing

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

}  // namespace

std::uint32_t choose_local_address(const Settings &settings) {
    if (settings.local_address) return *settings.local_address;
    const std::uint32_t controller = resolve_ipv4(settings.controller_host);
    wire::UdpSocket probe({INADDR_ANY, 0}, wire::kClientTtl);
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

}  // namespace switchml
