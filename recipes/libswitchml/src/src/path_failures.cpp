// SPDX-License-Identifier: BSD-3-Clause
#include "path_failures.hpp"

namespace switchml {
namespace {

constexpr std::size_t kIpv4HeaderBytes = 28;  // with UDP's
constexpr std::size_t kIpv6HeaderBytes = 48;

// What a packet with so many bytes of payload has with the headers of IP and UDP.
std::size_t bytes_on_the_way(const wire::Endpoint &data_plane, std::size_t packet_bytes) {
    return packet_bytes + (data_plane.ip.is_ipv4() ? kIpv4HeaderBytes : kIpv6HeaderBytes);
}

}  // namespace

Error no_path(const UnansweredProbes &probes) {
    std::string text = "no packets (UDP) pass between " + wire::to_text(probes.from) + " and the switch at " +
                       wire::to_text(probes.data_plane) + ": none of " + std::to_string(probes.sent) +
                       " was answered within " + std::to_string(probes.limit_ms) + " ms";
    if (!probes.network_says.empty()) text += " (the network's last answer: " + probes.network_says + ")";
    return {SWITCHML_EUNREACHABLE,
            text +
                ", while its controller answers (TCP); check the firewalls of both hosts and between them, and that "
                "packets of " +
                std::to_string(bytes_on_the_way(probes.data_plane, probes.packet_bytes)) + " bytes pass"};
}

Error too_large(const wire::Endpoint &data_plane, std::size_t packet_bytes) {
    return {SWITCHML_EIO, "packets of " + std::to_string(bytes_on_the_way(data_plane, packet_bytes)) +
                              " bytes do not pass to " + wire::to_text(data_plane) +
                              ": the path's MTU is smaller; raise it, or set "
                              "SWITCHML_PACKET_NUMEL=64 on all workers"};
}

}  // namespace switchml
