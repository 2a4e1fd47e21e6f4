// SPDX-License-Identifier: BSD-3-Clause
#include "endpoint.hpp"

#include <cerrno>
#include <string>
#include <system_error>

#include "wire/packet.hpp"

namespace switchml::udp {
namespace {

constexpr std::size_t kIpv4HeaderBytes = 28;  // with UDP's
constexpr std::size_t kIpv6HeaderBytes = 48;

Error bind_error(const std::system_error &error, const wire::Endpoint &wanted) {
    const std::string what = error.what();
    if (error.code().value() == EADDRINUSE) {
        return {SWITCHML_EIO, what +
                                  "; another worker or program has it: set SWITCHML_WORKER_PORT (the same on all "
                                  "workers), or SWITCHML_LOCAL_ADDRESS where several workers share a host"};
    }
    if (error.code().value() == EADDRNOTAVAIL) {
        return {SWITCHML_ECONFIG, what + "; SWITCHML_LOCAL_ADDRESS must be an address of this host, and " +
                                      wire::to_text(wanted.ip) + " is none"};
    }
    return {SWITCHML_EIO, what};
}

}  // namespace

std::vector<wire::UdpSocket> bind_sockets(const Settings &settings, const wire::Endpoint &first) {
    std::vector<wire::UdpSocket> sockets;
    for (std::uint32_t thread = 0; thread < settings.num_threads; ++thread) {
        const wire::Endpoint local{first.ip, static_cast<std::uint16_t>(first.port + thread)};
        try {
            sockets.emplace_back(local, wire::kClientTtl);
        } catch (const std::system_error &error) {
            throw bind_error(error, local);
        }
    }
    return sockets;
}

std::size_t bytes_on_the_way(const wire::Endpoint &data_plane, std::size_t packet_bytes) {
    return packet_bytes + (data_plane.ip.is_ipv4() ? kIpv4HeaderBytes : kIpv6HeaderBytes);
}

Error too_large(const wire::Endpoint &data_plane, std::size_t packet_bytes) {
    return {SWITCHML_EIO, "packets of " + std::to_string(bytes_on_the_way(data_plane, packet_bytes)) +
                              " bytes do not pass to " + wire::to_text(data_plane) +
                              ": the path's MTU is smaller; raise it, or set "
                              "SWITCHML_PACKET_NUMEL=64 on all workers"};
}

}  // namespace switchml::udp
