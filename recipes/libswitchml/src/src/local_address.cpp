// SPDX-License-Identifier: BSD-3-Clause
#include "local_address.hpp"

#include <netdb.h>

#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "error.hpp"
#include "wire/packet.hpp"
#include "wire/udp_socket.hpp"

namespace switchml {
namespace {

constexpr std::uint32_t kLoopbackWorkers = 0x7F005300;  // 127.0.83.0, workers at rank + 1
constexpr std::uint16_t kDiscardPort = 9;               // any port: connecting UDP sends nothing

struct Resolved {
    std::optional<wire::IpAddress> address;
    std::string reason;  // why there is none
};

Resolved resolve(const std::string &host, int family) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    const int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    if (code != 0 || found == nullptr) return {std::nullopt, gai_strerror(code)};
    return {wire::address_of(found->ai_addr), {}};
}

// A name that has addresses of both kinds counts as IPv4, which every switch speaks.
wire::IpAddress resolve(const std::string &host) {
    const Resolved ipv4 = resolve(host, AF_INET);
    if (ipv4.address) return *ipv4.address;
    if (const Resolved ipv6 = resolve(host, AF_INET6); ipv6.address) return *ipv6.address;
    throw Error(SWITCHML_EUNREACHABLE, "the controller's host '" + host + "' has no IPv4 or IPv6 address: " +
                                           ipv4.reason + "; check SWITCHML_CONTROLLER");
}

}  // namespace

wire::IpAddress choose_local_address(const Settings &settings) {
    if (settings.local_address) return *settings.local_address;
    const wire::IpAddress controller = resolve(settings.controller_host);
    wire::UdpSocket probe({controller.unspecified(), 0}, wire::kClientTtl);
    try {
        probe.connect({controller, kDiscardPort});
        const wire::IpAddress routed = wire::local_endpoint(probe.fd()).ip;
        if (routed.is_ipv4() && routed.is_loopback()) return kLoopbackWorkers + settings.rank + 1;
        return routed;
    } catch (const std::system_error &error) {
        throw Error(SWITCHML_EUNREACHABLE, std::string("no route to the controller: ") + error.what());
    }
}

std::uint16_t first_port(const Settings &settings, const wire::IpAddress &local_address) {
    if (local_address.is_ipv4() || !local_address.is_loopback()) return settings.worker_port;
    const std::uint32_t port = settings.worker_port + settings.rank * settings.num_threads;
    if (port + settings.num_threads - 1 <= 65535) return static_cast<std::uint16_t>(port);
    throw Error(SWITCHML_ECONFIG, "worker_port (SWITCHML_WORKER_PORT) " + std::to_string(settings.worker_port) +
                                      " leaves no ports for rank " + std::to_string(settings.rank) + " on ::1");
}

}  // namespace switchml
