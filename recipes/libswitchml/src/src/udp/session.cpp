// SPDX-License-Identifier: BSD-3-Clause
#include "session.hpp"

#include "controller_client.hpp"
#include "wire/interfaces.hpp"
#include "wire/packet.hpp"

namespace switchml::udp {
namespace {

wire::Endpoint request_session(ControllerClient &client, std::uint64_t session_id, const Settings &settings,
                               std::uint32_t local_address) {
    switchml_proto::UdpSessionRequest request;
    request.set_mac(wire::hardware_address(local_address));
    request.set_ipv4(local_address);
    request.set_packet_size(settings.packet_numel == 256 ? switchml_proto::PACKET_1024_BYTES
                                                         : switchml_proto::PACKET_256_BYTES);
    request.set_takes_bursts(true);
    const auto response = client.request_session(session_id, request);
    const std::uint32_t port = response.data_port() == 0 ? wire::kDataPort : response.data_port();
    return {response.ipv4(), static_cast<std::uint16_t>(port)};
}

}  // namespace

wire::Endpoint open_session(const Settings &settings, std::uint32_t local_address) {
    ControllerClient client(settings);
    client.connect();
    const bool first = settings.rank == 0;
    const std::uint64_t session_id = agree_on_session_id(client, settings);
    // Rank 0's request clears the switch, so it comes before all others; its barrier lets them go.
    if (!first) client.barrier();
    const wire::Endpoint data = request_session(client, session_id, settings, local_address);
    if (first) client.barrier();
    client.barrier();
    return data;
}

}  // namespace switchml::udp
