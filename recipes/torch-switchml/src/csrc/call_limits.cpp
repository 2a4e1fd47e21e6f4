// SPDX-License-Identifier: BSD-3-Clause
#include "call_limits.h"

#include <algorithm>
#include <utility>

namespace torch_switchml {

namespace {

using std::chrono::milliseconds;

// The clock counts nanoseconds, of which no number is the longest limit.
constexpr milliseconds kLongestWait = std::chrono::hours(1);

}  // namespace

CallLimits::CallLimits(std::function<void(milliseconds)> expired) : expired_(std::move(expired)) {}

CallLimits::~CallLimits() { stop(); }

void CallLimits::start() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!thread_.joinable() && !stopped_) {
        thread_ = std::thread([this] { watch(); });
    }
}

void CallLimits::begin(uint64_t number, Limit limit) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back({number, limit});
    if (calls_.size() == 1) {
        first_since_ = Clock::now();
        changed_.notify_all();
    }
}

void CallLimits::end(uint64_t number) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto call = std::lower_bound(calls_.begin(), calls_.end(), number,
                                       [](const Call &one, uint64_t wanted) { return one.number < wanted; });
    if (call == calls_.end() || call->number != number) {
        return;
    }
    const bool was_first = call == calls_.begin();
    calls_.erase(call);
    if (was_first) {
        first_since_ = Clock::now();
        changed_.notify_all();
    }
}

void CallLimits::stop() {
    std::unique_lock<std::mutex> lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    std::thread thread = std::move(thread_);
    lock.unlock();
    if (thread.joinable()) {
        thread.join();
    }
}

void CallLimits::watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopped_) {
        if (calls_.empty() || !calls_.front().limit) {
            changed_.wait(lock);
            continue;
        }
        const milliseconds limit = *calls_.front().limit;
        const auto passed = std::chrono::duration_cast<milliseconds>(Clock::now() - first_since_);
        if (passed < limit) {
            changed_.wait_for(lock, std::min(limit - passed, kLongestWait));
            continue;
        }
        calls_.front().limit.reset();
        lock.unlock();
        expired_(limit);
        lock.lock();
    }
}

}  // namespace torch_switchml
