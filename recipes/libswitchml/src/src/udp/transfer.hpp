// SPDX-License-Identifier: BSD-3-Clause
//
// A slice under way: which packet is sent when, from the results that come and
// the time that passes. Pure: the caller has the socket and the clock, so that
// tests run it in virtual time.
//
// A timer is a deadline per lane, all of which are looked at every quarter of the
// retransmission timeout; at most 4096 lanes make that cheaper than a queue.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "udp/slice.hpp"
#include "udp/slots.hpp"
#include "wire/packet.hpp"

namespace switchml::udp {

// How long a packet waits for its result until it is sent again: doubled each time, up to the longest.
struct RetransmitTimes {
    std::int64_t first_ns;
    std::int64_t longest_ns;

    static RetransmitTimes from_first(std::int64_t first_ns) {
        constexpr std::int64_t kMaxBackoff = 32;
        constexpr std::int64_t kLongestNs = 1000 * 1000 * 1000;
        return {first_ns, std::min(first_ns * kMaxBackoff, std::max(kLongestNs, first_ns))};
    }

    // Between two looks at the timers.
    std::int64_t tick_ns() const { return std::max<std::int64_t>(first_ns / 4, 1); }
};

// How long a job waits without any result.
struct Patience {
    std::int64_t job_ns;   // in any case
    std::int64_t gone_ns;  // once a worker or the switch has gone

    // What a worker that has gone had its share in can still be completed by the switch alone, through some losses;
    // and a switch that was stopped for a while finds every worker silent until the next renewals.
    static Patience of(std::int64_t job_ns, std::int64_t renewal_ns, const RetransmitTimes &times) {
        return {job_ns, std::max(2 * renewal_ns, 8 * times.longest_ns)};
    }

    bool ended(std::int64_t now_ns, std::int64_t progress_ns) const { return now_ns - progress_ns >= job_ns; }
    bool ended_by_absence(std::int64_t now_ns, std::int64_t progress_ns, std::int64_t gone_since_ns) const {
        return now_ns - std::max(progress_ns, gone_since_ns) >= gone_ns;
    }
};

// `send(unit)` is called for each unit whose packet has to go out, which slice().build() writes.
class Transfer {
  public:
    Transfer(const SliceData &data, const SlotRing &ring, std::uint32_t packet_numel, std::uint32_t num_workers,
             const RetransmitTimes &times)
        : slice_(data, ring, packet_numel, num_workers),
          window_(ring.window()),
          times_(times),
          timers_(slice_.lanes()) {}

    const Slice &slice() const noexcept { return slice_; }

    // Sends the first window.
    template <class Send>
    void start(std::int64_t now_ns, Send &&send) {
        for (std::uint32_t unit = 0; unit < slice_.lanes(); ++unit) release(unit, now_ns, send);
    }

    // Takes a packet that came from the switch and sends what it releases; false when it is none that is waited for.
    // Error EMISMATCH when it tells that the workers' jobs differ.
    template <class Send>
    bool take(const std::uint8_t *data, std::size_t bytes, std::int64_t now_ns, Send &&send) {
        const auto header = wire::decode(data, bytes);
        const auto unit = header ? slice_.accept(*header, data + wire::kHeaderBytes) : std::nullopt;
        if (!unit) return false;
        release(*unit + slice_.lanes(), now_ns, send);
        if (slice_.lanes() < window_) release(*unit + window_, now_ns, send);
        return true;
    }

    template <class Send>
    void resend_overdue(std::int64_t now_ns, Send &&send) {
        for (std::uint32_t lane = 0; lane < slice_.lanes(); ++lane) {
            Timer &timer = timers_[lane];
            if (!slice_.outstanding(lane) || timer.deadline_ns > now_ns) continue;
            send(slice_.unit_of(lane));
            timer.timeout_ns = std::min(2 * timer.timeout_ns, times_.longest_ns);
            timer.deadline_ns = now_ns + timer.timeout_ns;
        }
    }

  private:
    struct Timer {
        std::int64_t deadline_ns;
        std::int64_t timeout_ns;
    };

    template <class Send>
    void release(std::uint32_t unit, std::int64_t now_ns, Send &&send) {
        if (!slice_.ready(unit)) return;
        slice_.mark_sent(unit);
        send(unit);
        timers_[unit % slice_.lanes()] = {now_ns + times_.first_ns, times_.first_ns};
    }

    Slice slice_;
    std::uint32_t window_;
    RetransmitTimes times_;
    std::vector<Timer> timers_;
};

}  // namespace switchml::udp
