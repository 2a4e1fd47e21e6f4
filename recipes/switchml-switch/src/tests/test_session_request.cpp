// SPDX-License-Identifier: BSD-3-Clause
//
// Requests for sessions: which make sense, and where their workers' packets belong then.
#include "session_request.hpp"

#include <array>
#include <string>

#include "session_table.hpp"
#include "wire/check.hpp"
#include "wire/packet.hpp"

using namespace switchml;
using namespace switchml::softswitch;

namespace {

switchml_proto::UdpSessionRequest numbered(std::uint32_t first_port, std::uint32_t threads) {
    switchml_proto::UdpSessionRequest request;
    request.set_session_id(1);
    request.set_num_workers(1);
    request.set_ipv4(0x0A000001);
    request.set_packet_size(switchml_proto::PACKET_256_BYTES);
    request.set_window(2);
    request.set_first_port(first_port);
    request.set_num_threads(threads);
    return request;
}

bool takes(SessionTable &table, std::uint16_t port) {
    wire::Header header;
    header.size_class = 1;
    std::array<std::uint8_t, wire::packet_bytes(64)> packet{};
    wire::encode(header, packet.data());
    return table.take({0x0A000001, port}, packet.data(), packet.size()).has_value();
}

}  // namespace

TEST(all_ports_of_a_worker_exist) {
    CHECK_EQ(check_request(numbered(65532, 4), 32), "");
    // Counted on from 65535 they would be 0, which stands for all ports of an address, and others' own ones.
    CHECK_MENTIONS(check_request(numbered(65533, 4), 32), "expected ports up to 65535");
}

TEST(a_worker_gives_one_address) {
    auto request = numbered(4000, 1);
    request.set_ipv6(std::string(15, '\1'));
    for (const std::uint32_t ipv4 : {0x0A000001U, 0U}) {
        request.set_ipv4(ipv4);
        CHECK_MENTIONS(check_request(request, 32), "gives no IPv4 or IPv6 address");
    }
    request.set_ipv6(std::string(16, '\1'));
    CHECK_EQ(check_request(request, 32), "");
    CHECK_EQ(wire::to_text(to_session_request(request).member.ip), "101:101:101:101:101:101:101:101");
}

TEST(ports_come_with_a_window_or_not_at_all) {
    auto request = numbered(4000, 1);
    request.set_window(0);
    CHECK_MENTIONS(check_request(request, 32), "window, threads and port");
    request.set_num_threads(0);
    CHECK_MENTIONS(check_request(request, 32), "window, threads and port");
    request.set_first_port(0);
    CHECK_EQ(check_request(request, 32), "");
}

TEST(a_worker_that_comes_again_leaves_its_places) {
    SessionTable table;
    const SessionRequest first = to_session_request(numbered(4000, 2));
    table.open(first.session);
    table.set_worker(1, 0, first.member);
    table.set_worker(1, 0, to_session_request(numbered(5000, 2)).member);
    CHECK(takes(table, 5001));
    CHECK(!takes(table, 4001));
    CHECK_EQ(table.num_routes(), 2U);
}

CHECK_MAIN()
