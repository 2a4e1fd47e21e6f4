// SPDX-License-Identifier: BSD-3-Clause
//
// When a packet without a result is sent again, from how long results take. As
// TCP does it: the time-out of RFC 6298 where nothing comes any more, and RFC
// 8985's rule (a packet is lost once one that was sent sufficiently later has
// been answered) while results come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace switchml::udp {

struct RetransmitTimes {
    std::int64_t first_ns;    // the time-out before any result was timed, and the longest that follows from those
    std::int64_t longest_ns;  // that doubling it leads to

    static RetransmitTimes from_first(std::int64_t first_ns) {
        constexpr std::int64_t kMaxBackoff = 32;
        constexpr std::int64_t kLongestNs = 1000 * 1000 * 1000;
        return {first_ns, std::min(first_ns * kMaxBackoff, std::max(kLongestNs, first_ns))};
    }
};

// What one thread has learnt through a session.
class RoundTrips {
  public:
    // `adaptive`: false keeps to times.first_ns. A switch that compares no packet numbers may sum a packet that comes
    // late into another round, so it gets as few of them as may be.
    RoundTrips(const RetransmitTimes &times, bool adaptive) : times_(times), adaptive_(adaptive) {}

    const RetransmitTimes &times() const noexcept { return times_; }

    // A result came so long after its packet was sent. `at_start`: of a transfer, where most of it may be waiting for a
    // worker that began later; then only a shorter trip than those before says anything.
    void note(std::int64_t trip_ns, bool at_start) {
        trip_ns = std::min(trip_ns, times_.first_ns);
        if (at_start && mean_ns_ != 0 && trip_ns > mean_ns_) return;
        if (mean_ns_ == 0) {
            mean_ns_ = std::max<std::int64_t>(trip_ns, 1);
            deviation_ns_ = trip_ns / 2;
            return;
        }
        deviation_ns_ += (std::abs(trip_ns - mean_ns_) - deviation_ns_) / 4;
        mean_ns_ = std::max<std::int64_t>(mean_ns_ + (trip_ns - mean_ns_) / 8, 1);
    }

    std::int64_t timeout_ns() const {
        if (!known()) return times_.first_ns;
        return std::min(times_.first_ns, std::max(kLeastTimeoutNs, mean_ns_ + 4 * deviation_ns_));
    }

    // By how much a packet may have been sent before another, and its result still come after the other's.
    std::int64_t reordering_ns() const { return known() ? mean_ns_ / 4 : times_.first_ns; }

  private:
    static constexpr std::int64_t kLeastTimeoutNs = 200 * 1000;

    bool known() const noexcept { return adaptive_ && mean_ns_ > 0; }

    RetransmitTimes times_;
    bool adaptive_;
    std::int64_t mean_ns_ = 0;  // 0: nothing was timed yet
    std::int64_t deviation_ns_ = 0;
};

}  // namespace switchml::udp
