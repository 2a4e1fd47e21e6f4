// SPDX-License-Identifier: BSD-3-Clause
//
// A slice under way: which packet is sent when, from the results that come and
// the time that passes. Pure: the caller has the socket and the clock, so that
// tests run it in virtual time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "udp/retransmission.hpp"
#include "udp/slice.hpp"
#include "udp/slots.hpp"
#include "wire/packet.hpp"

namespace switchml::udp {

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
    // `trips` is the thread's, and learns from this transfer for the next.
    Transfer(const SliceData &data, const SlotRing &ring, std::uint32_t packet_numel, std::uint32_t num_workers,
             RoundTrips &trips)
        : slice_(data, ring, packet_numel, num_workers), window_(ring.window()), trips_(trips), sent_(slice_.lanes()) {}

    const Slice &slice() const noexcept { return slice_; }

    // Sends the first window.
    template <class Send>
    void start(std::int64_t now_ns, Send &&send) {
        for (std::uint32_t unit = 0; unit < slice_.lanes(); ++unit) release(unit, now_ns, send);
        newest_answered_ns_ = now_ns;
        await_answer(now_ns);
    }

    // Takes a packet that came from the switch and sends what it releases; false when it is none that is waited for.
    // Error EMISMATCH when it tells that the workers' jobs differ.
    template <class Send>
    bool take(const std::uint8_t *data, std::size_t bytes, std::int64_t now_ns, Send &&send) {
        const auto header = wire::decode(data, bytes);
        const auto unit = header ? slice_.accept(*header, data + wire::kHeaderBytes) : std::nullopt;
        if (!unit) return false;
        note_answer(*unit, now_ns);
        release(*unit + slice_.lanes(), now_ns, send);
        if (slice_.lanes() < window_) release(*unit + window_, now_ns, send);
        return true;
    }

    // When resend_lost has something to look at.
    std::int64_t next_look_ns() const {
        return answered_since_look_ ? std::min(deadline_ns_, looked_ns_ + trips_.reordering_ns()) : deadline_ns_;
    }

    // Sends again what later packets' results have overtaken. Where no result came for the time-out, which doubles each
    // time, a few packets only: all others most likely wait for a slower worker, and an answer tells about them.
    template <class Send>
    void resend_lost(std::int64_t now_ns, Send &&send) {
        looked_ns_ = now_ns;
        answered_since_look_ = false;
        const std::int64_t overtaken_ns = newest_answered_ns_ - trips_.reordering_ns();
        for (std::uint32_t lane = 0; lane < slice_.lanes(); ++lane) {
            if (slice_.outstanding(lane) && sent_[lane].at_ns < overtaken_ns) resend(lane, now_ns, send);
        }
        if (now_ns < deadline_ns_) return;
        for (const std::uint32_t lane : oldest_lanes()) resend(lane, now_ns, send);
        timeout_ns_ = std::min(2 * timeout_ns_, trips_.times().longest_ns);
        deadline_ns_ = now_ns + timeout_ns_;
    }

  private:
    static constexpr std::size_t kProbes = 8;

    // The latest packet of a lane.
    struct Sent {
        std::int64_t at_ns;
        bool again;
    };

    template <class Send>
    void release(std::uint32_t unit, std::int64_t now_ns, Send &&send) {
        if (!slice_.ready(unit)) return;
        slice_.mark_sent(unit);
        send(unit);
        sent_[unit % slice_.lanes()] = {now_ns, false};
    }

    template <class Send>
    void resend(std::uint32_t lane, std::int64_t now_ns, Send &&send) {
        send(slice_.unit_of(lane));
        sent_[lane] = {now_ns, true};
    }

    // Of a packet that was sent twice nobody knows which was answered. One that was overtaken is not timed either: a
    // worker's packet or its result was lost. Results that come together are one measurement.
    void note_answer(std::uint32_t unit, std::int64_t now_ns) {
        const Sent &sent = sent_[unit % slice_.lanes()];
        if (!sent.again && sent.at_ns >= newest_answered_ns_) {
            if (now_ns != timed_ns_) trips_.note(now_ns - sent.at_ns, unit < slice_.lanes());
            timed_ns_ = now_ns;
            newest_answered_ns_ = sent.at_ns;
        }
        answered_since_look_ = true;
        await_answer(now_ns);
    }

    void await_answer(std::int64_t now_ns) {
        timeout_ns_ = trips_.timeout_ns();
        deadline_ns_ = now_ns + timeout_ns_;
    }

    std::vector<std::uint32_t> oldest_lanes() const {
        std::vector<std::uint32_t> lanes;
        for (std::uint32_t lane = 0; lane < slice_.lanes(); ++lane) {
            if (slice_.outstanding(lane)) lanes.push_back(lane);
        }
        const auto end = lanes.begin() + static_cast<std::ptrdiff_t>(std::min(kProbes, lanes.size()));
        std::partial_sort(lanes.begin(), end, lanes.end(), [this](std::uint32_t a, std::uint32_t b) {
            return std::make_pair(sent_[a].at_ns, a) < std::make_pair(sent_[b].at_ns, b);
        });
        lanes.erase(end, lanes.end());
        return lanes;
    }

    Slice slice_;
    std::uint32_t window_;
    RoundTrips &trips_;
    std::vector<Sent> sent_;               // by lane
    std::int64_t newest_answered_ns_ = 0;  // when the latest-sent packet that was answered was sent
    bool answered_since_look_ = false;
    std::int64_t looked_ns_ = 0;
    std::int64_t timed_ns_ = -1;
    std::int64_t timeout_ns_ = 0;
    std::int64_t deadline_ns_ = 0;
};

}  // namespace switchml::udp
