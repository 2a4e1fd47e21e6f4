// SPDX-License-Identifier: BSD-3-Clause
#include "session.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <string>

#include "controller_client.hpp"
#include "error.hpp"
#include "wire/interfaces.hpp"
#include "wire/packet.hpp"

namespace switchml::udp {
namespace {

std::string owner_text() {
    std::array<char, 256> host{};
    const bool named = gethostname(host.data(), host.size() - 1) == 0;
    return "process " + std::to_string(getpid()) + " on " + (named ? host.data() : "an unnamed host");
}

switchml_proto::UdpSessionRequest make_request(const Settings &settings, const wire::Endpoint &first) {
    switchml_proto::UdpSessionRequest request;
    request.set_mac(wire::hardware_address(first.ip));
    if (first.ip.is_ipv4()) {
        request.set_ipv4(first.ip.ipv4());
    } else {
        request.set_ipv6(first.ip.to_message());
    }
    request.set_packet_size(settings.packet_numel == 256 ? switchml_proto::PACKET_1024_BYTES
                                                         : switchml_proto::PACKET_256_BYTES);
    request.set_takes_bursts(true);
    request.set_window(settings.max_outstanding_packets / settings.num_threads);
    request.set_first_port(first.port);
    request.set_num_threads(settings.num_threads);
    request.set_job(settings.job_name);
    request.set_owner(owner_text());
    return request;
}

void join(Session &session, const Settings &settings, const wire::Endpoint &first) {
    const auto response = session.controller->request_session(session.id, make_request(settings, first));
    const std::uint32_t port = response.data_port() == 0 ? wire::kDataPort : response.data_port();
    session.data_plane = {address_in(response), static_cast<std::uint16_t>(port)};
    if (session.data_plane.ip.is_ipv4() != first.ip.is_ipv4()) {
        throw Error(SWITCHML_EREFUSED, "the switch takes packets at " + wire::to_text(session.data_plane) + ", which " +
                                           wire::to_text(first.ip) +
                                           " cannot send to; set SWITCHML_LOCAL_ADDRESS to an address of that kind");
    }
    session.lease = std::chrono::milliseconds(response.lease_ms());
    session.answers_probes = response.answers_probes();
}

}  // namespace

Session open_session(const Settings &settings, const wire::Endpoint &first) {
    Session session;
    session.controller = std::make_shared<ControllerClient>(settings);
    ControllerClient &client = *session.controller;
    client.connect();
    const bool opens = settings.rank == 0;
    session.id = agree_on_session_id(client, settings);
    session.first_number = wire::first_number(session.id);
    // Rank 0's request clears the switch, so it comes before all others; its barrier lets them go.
    if (!opens) client.barrier();
    try {
        join(session, settings, first);
        if (opens) client.barrier();
        client.barrier();
    } catch (const Error &error) {
        // of a cancelled request it is not known whether the switch granted it
        if (session.lease.count() > 0 || error.status() == SWITCHML_EABORTED) client.end_lease(session.id);
        throw;
    }
    return session;
}

void give_back(const Session &session) {
    if (session.lease.count() > 0) session.controller->end_lease(session.id);
}

}  // namespace switchml::udp
