// SPDX-License-Identifier: BSD-3-Clause
//
// Time limits that calls have of their own, beside the one of the transport
// for all of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace torch_switchml {

// A call's time begins when no call before it is under way any more: a short
// limit does not count the time of those that it queues behind.
class CallLimits {
  public:
    using Limit = std::optional<std::chrono::milliseconds>;

    // `expired` is told, on a thread of this object, of a call that is under way
    // for longer than its limit; once a call.
    explicit CallLimits(std::function<void(std::chrono::milliseconds limit)> expired);
    ~CallLimits();
    CallLimits(const CallLimits &) = delete;
    CallLimits &operator=(const CallLimits &) = delete;

    // Before the first call that has a limit. Throws std::system_error where no
    // thread is to be had.
    void start();

    // Calls begin in the order of their numbers, and end in any.
    void begin(uint64_t number, Limit limit);
    void end(uint64_t number) noexcept;  // of a number that did not begin nothing happens

    // Returns when `expired` does not run any more. Idempotent.
    void stop();

  private:
    using Clock = std::chrono::steady_clock;

    struct Call {
        uint64_t number;
        Limit limit;
    };

    void watch();

    const std::function<void(std::chrono::milliseconds)> expired_;
    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::deque<Call> calls_;
    Clock::time_point first_since_;  // when the first of them became the first
    bool stopped_ = false;
    std::thread thread_;
};

}  // namespace torch_switchml
