// SPDX-License-Identifier: BSD-3-Clause
//
// Requests for sessions: which make sense, and where their workers' packets belong then.
#include "session_request.hpp"

#include <array>
#include <chrono>
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

TEST(a_session_is_for_those_who_show_its_token) {
    Leases leases(std::chrono::seconds(1), 4, [](std::uint64_t) { return std::nullopt; });
    const Leases::Clock::time_point now{std::chrono::hours(1)};
    SessionRequest request = to_session_request(numbered(4000, 1));
    request.session.num_workers = 2;
    request.token = "secret";
    CHECK_EQ(leases.admit(request, now).refusal, "");
    SessionRequest stranger = request;
    stranger.rank = 1;
    stranger.member.first_port = 5000;
    stranger.token = "";
    CHECK_MENTIONS(leases.admit(stranger, now).refusal, "rank 1 shows no session token, unlike a job without a name");
    CHECK(leases.stands(1));  // and is not given up because of it
    stranger.token = "guesses";
    CHECK_MENTIONS(leases.admit(stranger, now).refusal, "rank 1 shows another session token than");
    for (const char *token : {"", "guesses", "secretsecret"}) {
        CHECK_MENTIONS(leases.renew(1, 0, now, token), "another token");
        CHECK(!leases.end(1, 0, token));
    }
    stranger.token = "secret";
    CHECK_EQ(leases.admit(stranger, now).refusal, "");
    CHECK_EQ(leases.renew(1, 0, now, "secret"), "");
    CHECK(!leases.end(1, 0, "secret") && leases.end(1, 1, "secret"));
}

TEST(a_session_without_a_token_takes_none) {
    Leases leases(std::chrono::seconds(1), 4, [](std::uint64_t) { return std::nullopt; });
    const Leases::Clock::time_point now{std::chrono::hours(1)};
    SessionRequest request = to_session_request(numbered(4000, 1));
    request.session.num_workers = 2;
    request.job = "open";
    CHECK_EQ(leases.admit(request, now).refusal, "");
    request.rank = 1;
    request.token = "secret";
    request.member.first_port = 5000;
    CHECK_MENTIONS(leases.admit(request, now).refusal, "rank 1 shows a session token, unlike job 'open'");
}

TEST(a_session_with_a_token_keeps_its_place_until_its_lease_is_over) {
    Leases leases(std::chrono::seconds(1), 4, [](std::uint64_t) { return std::nullopt; });
    const Leases::Clock::time_point now{std::chrono::hours(1)};
    SessionRequest request = to_session_request(numbered(4000, 1));
    request.token = "secret";
    CHECK_EQ(leases.admit(request, now).refusal, "");
    SessionRequest next = request;  // from the same address and port
    next.session.id = 2;
    next.token = "";
    CHECK_MENTIONS(leases.admit(next, now).refusal, "10.0.0.1:4000, and does not show that job's session token");
    CHECK(leases.stands(1) && !leases.stands(2));
    next.session.id = 3;
    next.token = "secret";  // the job that was started again
    CHECK_EQ(leases.admit(next, now).refusal, "");
    CHECK(!leases.stands(1) && leases.stands(3));
    next.session.id = 4;
    next.token = "";
    CHECK_EQ(leases.admit(next, now + std::chrono::seconds(1)).refusal, "");
    CHECK(!leases.stands(3) && leases.stands(4));
}

CHECK_MAIN()
