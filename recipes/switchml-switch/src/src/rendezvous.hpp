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
#include <string>

namespace switchml::softswitch {

struct Outcome {
    enum class Kind { kDone, kFailed, kCancelled };
    Kind kind = Kind::kDone;
    std::uint64_t value = 0;  // of a broadcast
    std::string reason;       // of a failure
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
    Outcome barrier(std::uint32_t num_workers, const Cancelled &cancelled);
    Outcome broadcast(const BroadcastCall &call, const Cancelled &cancelled);

    // A worker was refused: the session being set up will not come about.
    void break_session(const std::string &reason);

  private:
    using Clock = std::chrono::steady_clock;

    struct Call {
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
        Clock::time_point latest;  // when the latest call came
    };

    void settle(Group &group, const Outcome &outcome);
    void complete_broadcast_when_due();
    Outcome wait(std::unique_lock<std::mutex> &lock, Group &group, std::uint64_t key, const CallPointer &call,
                 const Cancelled &cancelled);

    std::mutex mutex_;
    std::condition_variable changed_;
    Group barrier_;
    Group broadcast_;
    std::uint64_t arrivals_ = 0;
    std::string broken_;  // why, empty when not
};

}  // namespace switchml::softswitch
