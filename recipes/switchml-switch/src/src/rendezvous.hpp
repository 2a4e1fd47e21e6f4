// SPDX-License-Identifier: BSD-3-Clause
//
// Barrier and broadcast between workers whose calls carry no session. A call of
// a dead session must not be counted for the next one, so
// - a call that its caller gave up leaves,
// - the newest call wins over older ones that contradict it,
// - a broadcast waits for all, its root included, and for a moment more, since the
//   news that a caller has gone may come later than the call of its successor,
// - when a broadcast completes, every call still waiting in a barrier belongs to
//   an older session and fails,
// - a caller that left a broadcast and does not come back for some time fails it
//   for the others, and so does one that is missing in a barrier for as long,
//   where the others say their ranks (published clients do not),
// - after a refusal all waiting and coming barrier calls fail with its reason,
//   until the next broadcast completes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace switchml::softswitch {

struct Outcome {
    enum class Kind { kDone, kFailed, kCancelled, kAbsent };
    Kind kind = Kind::kDone;
    std::uint64_t value = 0;  // of a broadcast
    std::string reason;       // of a failure, and who is absent
};

// Whether the caller has gone; asked every few milliseconds while waiting.
using Cancelled = std::function<bool()>;

struct BroadcastCall {
    std::uint64_t value;
    std::uint32_t rank;
    std::uint32_t num_workers;
    std::uint32_t root;
};

class Rendezvous {
  public:
    // `timeout`: how long who is missing is waited for.
    explicit Rendezvous(std::chrono::milliseconds timeout) : timeout_(timeout) {}

    // `rank` is below num_workers.
    Outcome barrier(std::uint32_t num_workers, const Cancelled &cancelled, std::optional<std::uint32_t> rank = {});
    Outcome broadcast(const BroadcastCall &call, const Cancelled &cancelled);

    // A worker was refused: the session being set up will not come about.
    void break_session(const std::string &reason);

  private:
    using Clock = std::chrono::steady_clock;

    struct Call {
        std::optional<std::uint32_t> rank;
        Clock::time_point since = Clock::now();
        bool settled = false;
        Outcome outcome;
    };
    using CallPointer = std::shared_ptr<Call>;

    // Calls waiting for one another, by rank (broadcast) or in order of arrival (barrier).
    struct Group {
        std::uint32_t num_workers = 0;
        std::uint32_t root = 0;
        std::uint64_t value = 0;
        std::map<std::uint64_t, CallPointer> calls;
        Clock::time_point latest;                         // when the latest call came
        std::map<std::uint64_t, Clock::time_point> left;  // callers that have gone, and when
    };

    void settle(Group &group, const Outcome &outcome);
    void complete_broadcast_when_due();
    void fail_without_the_absent();
    static std::string absent_of(const Group &barrier);
    Outcome wait(std::unique_lock<std::mutex> &lock, Group &group, std::uint64_t key, const CallPointer &call,
                 const Cancelled &cancelled);

    const std::chrono::milliseconds timeout_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Group barrier_;
    Group broadcast_;
    std::uint64_t arrivals_ = 0;
    std::string broken_;  // why, empty when not
};

}  // namespace switchml::softswitch
