// SPDX-License-Identifier: BSD-3-Clause
//
// Which sessions stand, who is in them, and which stands in the way of another.
// A session is a lease: it stands until all its workers have ended it, or none
// was heard of for the lease's time and somebody else wants its place. Who opens
// a session with a token has it for those that show the same: nobody else joins,
// renews or ends it, or takes its place while its lease lasts. Pure: the caller
// says what time it is and when packets came.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "session_table.hpp"

namespace switchml::softswitch {

struct SessionRequest {
    SessionOptions session;
    std::uint32_t rank = 0;
    Member member;
    std::string job;    // empty: unnamed
    std::string owner;  // who asks; empty: published clients do not say
    std::string token;  // the session's; empty: none
};

// What is to be said of a session that stands.
struct SessionState {
    std::uint64_t id;
    std::string job;
    std::uint32_t num_workers;
    std::uint32_t present;                 // workers that are in and have not ended it
    std::chrono::milliseconds lease_left;  // until it gives way if nothing is heard of it
};

class Leases {
  public:
    using Clock = std::chrono::steady_clock;
    using LatestPacket = std::function<std::optional<Clock::time_point>(std::uint64_t session)>;

    Leases(std::chrono::milliseconds length, std::size_t max_sessions, LatestPacket latest_packet)
        : length_(length), max_sessions_(max_sessions), latest_packet_(std::move(latest_packet)) {}

    struct Admission {
        std::string refusal;                   // empty: admitted
        std::vector<std::uint64_t> displaced;  // sessions that had to make room
    };

    // Rank 0 opens a session, the others join it. A worker's address and ports belong to who came last, since only one
    // process can have them bound: a session that it was in before is displaced, however fresh its lease.
    Admission admit(const SessionRequest &request, Clock::time_point now);

    // A session that did not come about, or whose workers are all gone.
    void drop(std::uint64_t session, const std::string &reason);

    // Why the worker has no part in the session (any more), empty while it has.
    std::string renew(std::uint64_t session, std::uint32_t rank, Clock::time_point now, const std::string &token = {});

    // Workers of a session that ended it or did not renew it for so long, as text. Published clients never renew.
    std::string missing(std::uint64_t session, Clock::duration silence, Clock::time_point now) const;

    // True when it was the last worker of the session, which is over then. Another token than the session's ends
    // nothing.
    bool end(std::uint64_t session, std::uint32_t rank, const std::string &token = {});

    bool stands(std::uint64_t session) const { return sessions_.count(session) > 0; }
    std::vector<SessionState> states(Clock::time_point now) const;
    std::chrono::milliseconds length() const noexcept { return length_; }

  private:
    struct Seat {
        Member member;
        std::string owner;
        Clock::time_point heard;
        bool ended = false;
    };

    struct Session {
        SessionOptions options;
        std::string job;
        std::string token;
        std::map<std::uint32_t, Seat> seats;     // by rank
        std::optional<Clock::time_point> begun;  // the first renewal: all workers are in, and renew from here on
    };

    std::string open(const SessionRequest &request, Clock::time_point now, std::vector<std::uint64_t> &displaced);
    std::string check_member(const SessionRequest &request, Clock::time_point now) const;
    std::string check_place(const SessionRequest &request, Clock::time_point now) const;
    void displace(const SessionRequest &request, Clock::time_point now, std::vector<std::uint64_t> &displaced);
    // Whether the worker's having the place of one of an older session's is enough to end that.
    bool may_replace(const SessionRequest &request, const Session &older, Clock::time_point now) const;
    Clock::time_point heard(const Session &session) const;
    std::string describe(const Session &session, Clock::time_point now) const;

    std::chrono::milliseconds length_;
    std::size_t max_sessions_;
    LatestPacket latest_packet_;
    std::map<std::uint64_t, Session> sessions_;
    std::deque<std::pair<std::uint64_t, std::string>> ended_;  // the latest, with the reasons
};

}  // namespace switchml::softswitch
