// SPDX-License-Identifier: BSD-3-Clause
//
// Messages to the controller, from their bytes on: each input is a sequence of
// requests for sessions, renewals and ends, with or without one of two tokens and
// with time passing between them.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <array>
#include <map>

#include "input.hpp"
#include "leases.hpp"
#include "session_request.hpp"
#include "session_table.hpp"
#include "switchml.pb.h"

using namespace switchml;
using namespace switchml::softswitch;
using fuzz::Input;

namespace {

constexpr std::uint32_t kMaxWorkers = 8;
constexpr std::size_t kMaxSessions = 2;
constexpr std::chrono::milliseconds kLease{1000};

// The controller's work, without gRPC and threads.
class Controller {
  public:
    ~Controller() {
        for (const SessionState &session : leases_.states(now_)) table().close(session.id);
    }

    void pass(std::uint32_t milliseconds) { now_ += std::chrono::milliseconds(milliseconds); }

    void admit(const switchml_proto::UdpSessionRequest &request, const std::string &token) {
        const std::string fault = check_request(request, kMaxWorkers);
        REQUIRE(fuzz::is_printable(fault));
        if (!fault.empty()) return;
        SessionRequest asked = to_session_request(request);
        asked.token = token;
        const Leases::Admission admission = leases_.admit(asked, now_);
        for (const std::uint64_t id : admission.displaced) table().close(id);
        REQUIRE(fuzz::is_printable(admission.refusal));
        if (!admission.refusal.empty()) return;
        if (asked.rank == 0) table().open(asked.session);
        table().set_worker(asked.session.id, asked.rank, asked.member);
        check_route(asked);
        members_[{asked.session.id, asked.rank}] = asked;
        REQUIRE(shows_token(asked.session.id, token));
    }

    void renew(const switchml_proto::LeaseRequest &request, const std::string &token) {
        const std::uint64_t id = request.session_id();
        REQUIRE(leases_.renew(id, request.rank(), now_, token).empty() ==
                (leases_.stands(id) && shows_token(id, token)));
        REQUIRE(fuzz::is_printable(leases_.missing(request.session_id(), kLease, now_)));
    }

    void end(const switchml_proto::LeaseRequest &request, const std::string &token) {
        if (!leases_.end(request.session_id(), request.rank(), token)) return;
        REQUIRE(shows_token(request.session_id(), token));
        table().close(request.session_id());
    }

    // Sessions of the one and of the other are the same, and each worker's packets are of its own session.
    void check() {
        const auto states = leases_.states(now_);
        REQUIRE(states.size() <= kMaxSessions && states.size() == table().size());
        for (const SessionState &state : states) {
            REQUIRE(table().find(state.id) != nullptr && state.present <= state.num_workers);
            REQUIRE(state.lease_left.count() >= 0 && state.lease_left <= kLease);
        }
        std::size_t places = 0;
        for (auto member = members_.begin(); member != members_.end();) {
            if (!leases_.stands(member->first.first)) {
                member = members_.erase(member);
                continue;
            }
            check_route(member->second);
            places += std::max<std::size_t>(member->second.member.num_ports, 1);
            ++member;
        }
        REQUIRE(table().num_routes() == places);
    }

  private:
    // That rank 0 showed for the session.
    bool shows_token(std::uint64_t session, const std::string &token) const {
        return members_.at({session, 0}).token == token;
    }

    static SessionTable &table() {
        static SessionTable sessions;
        return sessions;
    }

    // A packet from each of the worker's ports is taken for it.
    static void check_route(const SessionRequest &asked) {
        const Member &member = asked.member;
        wire::Header header;
        header.size_class = wire::size_class_of(asked.session.packet_numel);
        header.slot = wire::kNumSlots - 1;
        std::array<std::uint8_t, wire::kMaxPacketBytes> packet{};
        wire::encode(header, packet.data());
        for (std::uint32_t lane = 0; lane < std::max<std::uint32_t>(member.num_ports, 1); ++lane) {
            const std::uint32_t port = member.first_port == 0 ? 4000 : member.first_port + lane;
            REQUIRE(port <= 65535);
            const auto taken = table().take({member.ip, static_cast<std::uint16_t>(port)}, packet.data(),
                                            wire::packet_bytes(asked.session.packet_numel));
            REQUIRE(taken && taken->route.session->id == asked.session.id && taken->route.rank == asked.rank);
            REQUIRE(taken->route.lane == (member.first_port == 0 ? 4000 : lane));
        }
    }

    Leases::Clock::time_point now_{std::chrono::hours(1)};
    Leases leases_{kLease, kMaxSessions, [](std::uint64_t) { return std::nullopt; }};
    std::map<std::pair<std::uint64_t, std::uint32_t>, SessionRequest> members_;
};

template <class Message>
bool parse(Input &input, Message &message) {
    const std::string bytes = input.text(input.number(2));
    return message.ParseFromString(bytes);
}

// The numbers that make requests meet: few sessions, addresses and ports.
void narrow(switchml_proto::UdpSessionRequest &request) {
    request.set_session_id(request.session_id() % 4);
    request.set_ipv4(request.ipv4() % 4);
    request.set_num_workers(request.num_workers() % 4);
    request.set_rank(request.rank() % 4);
    request.set_packet_size(switchml_proto::PACKET_256_BYTES);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    Input input(data, bytes);
    static auto *const said_before = google::protobuf::SetLogHandler(nullptr);  // names that are no UTF-8
    REQUIRE(said_before != nullptr);
    Controller controller;
    for (int calls = 0; calls < 100 && input.left() > 0; ++calls) {
        const std::uint8_t kind = input.byte();
        controller.pass(kind >> 4 << 5);
        const std::string token = std::array<const char *, 4>{"", "", "one", "two"}[kind >> 2 & 3];
        switchml_proto::LeaseRequest lease;
        if (kind % 4 < 2) {
            switchml_proto::UdpSessionRequest request;
            if (!parse(input, request)) continue;
            if (kind % 4 == 1) narrow(request);
            controller.admit(request, token);
        } else if (parse(input, lease)) {
            if (kind % 4 == 2) controller.renew(lease, token);
            if (kind % 4 == 3) controller.end(lease, token);
        }
        controller.check();
    }
    return 0;
}
