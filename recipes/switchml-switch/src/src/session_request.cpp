// SPDX-License-Identifier: BSD-3-Clause
#include "session_request.hpp"

#include "wire/packet.hpp"

namespace switchml::softswitch {
namespace {

constexpr std::uint32_t kMaxThreads = 32;

std::uint32_t requested_numel(const switchml_proto::UdpSessionRequest &request) {
    const int size_class = static_cast<int>(request.packet_size());
    return size_class >= 0 && size_class <= 3 ? wire::numel_of(static_cast<std::uint8_t>(size_class)) : 0;
}

// Unspecified where it gives none, or two.
wire::IpAddress address_of(const switchml_proto::UdpSessionRequest &request) {
    if (request.ipv6().empty()) return request.ipv4();
    if (request.ipv4() != 0) return {};
    return wire::IpAddress::from_message(request.ipv6()).value_or(wire::IpAddress());
}

}  // namespace

std::string who(std::uint32_t rank) { return "rank " + std::to_string(rank); }

std::string excess(const char *name, const std::string &value) {
    if (value.size() <= kMaxNameBytes) return {};
    return std::string(name) + " has " + std::to_string(value.size()) + " bytes, expected at most " +
           std::to_string(kMaxNameBytes);
}

std::string check_request(const switchml_proto::UdpSessionRequest &request, std::uint32_t max_workers) {
    if (request.num_workers() < 1 || request.num_workers() > max_workers) {
        return std::to_string(request.num_workers()) + " workers, expected 1 to " + std::to_string(max_workers);
    }
    if (request.rank() >= request.num_workers())
        return who(request.rank()) + " of " + std::to_string(request.num_workers());
    if (request.session_id() == 0) return "session id 0";
    if (address_of(request).is_unspecified()) return who(request.rank()) + " gives no IPv4 or IPv6 address";
    if (request.num_threads() > kMaxThreads || std::uint64_t{request.first_port()} + request.num_threads() > 65536 ||
        std::uint64_t{request.window()} * request.num_threads() > wire::kNumSlots / 2) {
        return who(request.rank()) + " has port " + std::to_string(request.first_port()) + ", " +
               std::to_string(request.num_threads()) + " threads and a window of " + std::to_string(request.window()) +
               "; expected ports up to 65535, at most " + std::to_string(kMaxThreads) + " threads and " +
               std::to_string(wire::kNumSlots / 2) + " packets outstanding";
    }
    const bool numbered = request.window() != 0;
    if (numbered != (request.num_threads() != 0) || numbered != (request.first_port() != 0))
        return who(request.rank()) + " numbers its packets without saying its window, threads and port";
    for (const std::string &fault : {excess("the job's name", request.job()), excess("owner", request.owner())})
        if (!fault.empty()) return fault;
    if (requested_numel(request) == 0)
        return who(request.rank()) + " asks for packets that are neither 256 nor 1024 bytes";
    return {};
}

SessionRequest to_session_request(const switchml_proto::UdpSessionRequest &request) {
    SessionRequest asked;
    asked.session = {request.session_id(), request.num_workers(), requested_numel(request), std::nullopt};
    if (request.window() > 0) {
        asked.session.numbering =
            Numbering{wire::first_number(request.session_id()), request.window(), request.num_threads()};
    }
    asked.rank = request.rank();
    asked.member = {address_of(request), static_cast<std::uint16_t>(request.first_port()),
                    static_cast<std::uint16_t>(request.num_threads()), request.takes_bursts()};
    asked.job = request.job();
    asked.owner = request.owner();
    return asked;
}

}  // namespace switchml::softswitch
