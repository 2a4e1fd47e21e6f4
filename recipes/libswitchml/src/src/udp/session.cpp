// SPDX-License-Identifier: BSD-3-Clause
#include "session.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <string>

#include "controller_client.hpp"
#include "wire/interfaces.hpp"
#include "wire/packet.hpp"

namespace switchml::udp {
namespace {

std::string owner_text() {
    std::array<char, 256> host{};
    const bool named = gethostname(host.data(), host.size() - 1) == 0;
    return "process " + std::to_string(getpid()) + " on " + (named ? host.data() : "an unnamed host");
}

switchml_proto::UdpSessionRequest make_request(const Settings &settings, std::uint32_t local_address) {
    switchml_proto::UdpSessionRequest request;
    request.set_mac(wire::hardware_address(local_address));
    request.set_ipv4(local_address);
    request.set_packet_size(settings.packet_numel == 256 ? switchml_proto::PACKET_1024_BYTES
                                                         : switchml_proto::PACKET_256_BYTES);
    request.set_takes_bursts(true);
    request.set_window(settings.max_outstanding_packets / settings.num_threads);
    request.set_first_port(settings.worker_port);
    request.set_num_threads(settings.num_threads);
    request.set_job(settings.job_name);
    request.set_owner(owner_text());
    return request;
}

void join(Session &session, const Settings &settings, std::uint32_t local_address) {
    const auto response = session.controller->request_session(session.id, make_request(settings, local_address));
    const std::uint32_t port = response.data_port() == 0 ? wire::kDataPort : response.data_port();
    session.data_plane = {response.ipv4(), static_cast<std::uint16_t>(port)};
    session.lease = std::chrono::milliseconds(response.lease_ms());
}

}  // namespace

Session open_session(const Settings &settings, std::uint32_t local_address) {
    Session session;
    session.controller = std::make_shared<ControllerClient>(settings);
    ControllerClient &client = *session.controller;
    client.connect();
    const bool first = settings.rank == 0;
    session.id = agree_on_session_id(client, settings);
    session.first_number = wire::first_number(session.id);
    // Rank 0's request clears the switch, so it comes before all others; its barrier lets them go.
    if (!first) client.barrier();
    join(session, settings, local_address);
    try {
        if (first) client.barrier();
        client.barrier();
    } catch (const Error &) {
        if (session.lease.count() > 0) client.end_lease(session.id);
        throw;
    }
    return session;
}

}  // namespace switchml::udp
