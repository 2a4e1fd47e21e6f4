// SPDX-License-Identifier: BSD-3-Clause
//
// The software switch without sockets, threads and gRPC: its own leases, sessions
// and slots in virtual time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "agenda.hpp"
#include "leases.hpp"
#include "network.hpp"
#include "session_table.hpp"

namespace switchml::simulation {

constexpr std::size_t kMaxSessions = 2;

inline wire::Endpoint switch_endpoint() { return {0x0A000001, wire::kDataPort}; }

struct Renewal {
    std::string lost;
    std::string missing;
    std::string gone;
};

class ModelSwitch {
  public:
    ModelSwitch(Agenda &agenda, Network &network, Weakness weakness);

    // Forgets everything and does not answer for so long.
    void restart(std::int64_t down_ns);
    bool up() const noexcept { return agenda_.now_ns() >= up_from_ns_; }

    // What the controller does with a call; only while it is up. admit gives the reason of a refusal.
    std::string admit(const softswitch::SessionRequest &request);
    Renewal renew(std::uint64_t session, std::uint32_t rank);
    void end(std::uint64_t session, std::uint32_t rank);

    void receive(const Packet &packet);

    // Whether a session took a packet that corruption had changed.
    bool altered(std::uint64_t session) const { return altered_.count(session) > 0; }
    std::size_t sessions() const { return sessions_->size(); }

  private:
    void reply(const softswitch::SessionTable::Taken &taken);
    softswitch::Leases::Clock::time_point now() const {
        return softswitch::Leases::Clock::time_point(std::chrono::nanoseconds(agenda_.now_ns()));
    }

    Agenda &agenda_;
    Network &network_;
    const Weakness weakness_;
    std::int64_t up_from_ns_ = 0;
    std::unique_ptr<softswitch::SessionTable> sessions_;
    std::unique_ptr<softswitch::Leases> leases_;
    std::map<std::uint64_t, softswitch::Leases::Clock::time_point> latest_packets_;  // by session
    std::set<std::uint64_t> altered_;
};

}  // namespace switchml::simulation
