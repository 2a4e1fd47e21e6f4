// SPDX-License-Identifier: BSD-3-Clause
//
// The slices of one thread under way: which packet is sent when, from the
// results that come and the time that passes. Pure: the caller has the socket
// and the clock, so that tests run it in virtual time.
//
// At the end of a slice ever fewer of its packets are under way. The next one
// begins in the slots that are no longer needed, each as soon as its last
// result has come, so that the network and the switch have no pause between
// jobs. Packets are numbered through the session, so nothing on the wire tells
// that from one slice after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "error.hpp"
#include "udp/retransmission.hpp"
#include "udp/slice.hpp"
#include "udp/slots.hpp"
#include "wire/packet.hpp"

namespace switchml::udp {

// How long a job waits without any result.
struct Timeouts {
    std::int64_t job_ns;   // in any case
    std::int64_t gone_ns;  // once a worker or the switch has gone

    // What a worker that has gone had its share in can still be completed by the switch alone, through some losses;
    // and a switch that was stopped for a while finds every worker silent until the next renewals.
    static Timeouts of(std::int64_t job_ns, std::int64_t renewal_ns, const RetransmitTimes &times) {
        return {job_ns, std::max(2 * renewal_ns, 8 * times.longest_ns)};
    }

    bool ended(std::int64_t now_ns, std::int64_t progress_ns) const { return now_ns - progress_ns >= job_ns; }
    bool ended_by_absence(std::int64_t now_ns, std::int64_t progress_ns, std::int64_t gone_since_ns) const {
        return now_ns - std::max(progress_ns, gone_since_ns) >= gone_ns;
    }
};

// `send(slice, unit)` is called for each unit whose packet has to go out, which slice.build() writes.
class Pipeline {
  public:
    // `trips` is the thread's, and learns from each slice for the next. `overlaps`: whether a slice may begin before
    // the one ahead of it is complete, which takes a switch that compares packet numbers.
    Pipeline(const SlotRing &ring, std::uint32_t packet_numel, std::uint32_t num_workers, RoundTrips &trips,
             bool overlaps)
        : ring_(ring), packet_numel_(packet_numel), num_workers_(num_workers), trips_(trips), overlaps_(overlaps) {}

    bool idle() const noexcept { return front_ == nullptr; }

    // The oldest slice; not where idle.
    const Slice &front() const noexcept { return front_->slice; }
    // The one that has begun behind it; nullptr for none.
    const Slice *next() const noexcept { return next_ ? &next_->slice : nullptr; }

    // Whether begin() may be called: one slice may follow one whose last packets are under way.
    bool has_room() const noexcept {
        if (idle()) return true;
        return overlaps_ && next_ == nullptr && front().units() - front().received() <= ring_.window();
    }

    // Sends what the slots allow of a slice, the first window where nothing else is under way. Where something is, the
    // slice must neither read nor write its memory.
    template <class Send>
    void begin(const SliceData &data, std::int64_t now_ns, Send &&send) {
        const bool alone = idle();
        auto transfer = std::make_unique<Transfer>(
            Slice(data, ring_, packet_numel_, num_workers_, alone ? nullptr : &front_->slice));
        ring_.advance(transfer->slice.units());
        std::unique_ptr<Transfer> &place = alone ? front_ : next_;
        place = std::move(transfer);
        if (alone) {
            newest_answered_ns_ = now_ns;
            answered_since_look_ = false;
            await_answer(now_ns);
        }
        for (std::uint32_t unit = 0; unit < place->slice.lanes(); ++unit) release(*place, unit, now_ns, send);
    }

    // Takes a packet that came from the switch and sends what it releases; false when it is none that is waited for.
    // Error EMISMATCH when it tells that the workers' jobs differ; where that is the second slice, drop_front() does.
    template <class Send>
    bool take(const std::uint8_t *data, std::size_t bytes, std::int64_t now_ns, Send &&send) {
        const auto header = wire::decode(data, bytes);
        if (!header) return false;
        const std::uint8_t *values = data + wire::kHeaderBytes;
        if (front_ && accept(*front_, *header, values, now_ns, send)) return true;
        if (!next_ || difference_) return false;
        try {
            return accept(*next_, *header, values, now_ns, send);
        } catch (const Error &) {
            difference_ = std::current_exception();
            return true;
        }
    }

    // Ends the oldest slice, which is complete. Error EMISMATCH as take().
    void drop_front() {
        front_ = std::move(next_);
        if (front_) front_->slice.forget_ahead();
        if (difference_) std::rethrow_exception(std::exchange(difference_, nullptr));
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
        for (Transfer *transfer : {front_.get(), next_.get()}) {
            for (std::uint32_t lane = 0; transfer != nullptr && lane < transfer->slice.lanes(); ++lane) {
                if (transfer->slice.outstanding(lane) && transfer->sent[lane].at_ns < overtaken_ns)
                    resend(*transfer, lane, now_ns, send);
            }
        }
        if (now_ns < deadline_ns_) return;
        for (const OldLane &old : oldest_lanes()) resend(*old.transfer, old.lane, now_ns, send);
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

    struct Transfer {
        explicit Transfer(Slice &&begun) : slice(std::move(begun)), sent(slice.lanes()) {}

        Slice slice;
        std::vector<Sent> sent;  // by lane
    };

    struct OldLane {
        std::int64_t sent_ns;
        bool of_next;
        std::uint32_t lane;
        Transfer *transfer;

        bool operator<(const OldLane &other) const {
            return std::tie(sent_ns, of_next, lane) < std::tie(other.sent_ns, other.of_next, other.lane);
        }
    };

    template <class Send>
    void release(Transfer &transfer, std::uint32_t unit, std::int64_t now_ns, Send &&send) {
        if (!transfer.slice.ready(unit)) return;
        transfer.slice.mark_sent(unit);
        send(transfer.slice, unit);
        transfer.sent[unit % transfer.slice.lanes()] = {now_ns, false};
    }

    template <class Send>
    void resend(Transfer &transfer, std::uint32_t lane, std::int64_t now_ns, Send &&send) {
        send(transfer.slice, transfer.slice.unit_of(lane));
        transfer.sent[lane] = {now_ns, true};
    }

    // A result, and what waited for it: the unit that needs its data, and the one that needs its slot, which may be of
    // the next slice.
    template <class Send>
    bool accept(Transfer &transfer, const wire::Header &header, const std::uint8_t *values, std::int64_t now_ns,
                Send &&send) {
        const auto unit = transfer.slice.accept(header, values);
        if (!unit) return false;
        note_answer(transfer, *unit, now_ns);
        const std::uint32_t lanes = transfer.slice.lanes();
        const std::uint32_t units = transfer.slice.units();
        const std::uint64_t same_slot = static_cast<std::uint64_t>(*unit) + ring_.window();
        release(transfer, *unit + lanes, now_ns, send);
        if (same_slot >= units) {
            if (&transfer == front_.get() && next_)
                release(*next_, static_cast<std::uint32_t>(same_slot - units), now_ns, send);
        } else if (lanes < ring_.window()) {
            release(transfer, static_cast<std::uint32_t>(same_slot), now_ns, send);
        }
        return true;
    }

    // Of a packet that was sent twice nobody knows which was answered. One that was overtaken is not timed either: a
    // worker's packet or its result was lost. Results that come together are one measurement.
    void note_answer(const Transfer &transfer, std::uint32_t unit, std::int64_t now_ns) {
        const Sent &sent = transfer.sent[unit % transfer.slice.lanes()];
        if (!sent.again && sent.at_ns >= newest_answered_ns_) {
            if (now_ns != timed_ns_) trips_.note(now_ns - sent.at_ns, unit < transfer.slice.lanes());
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

    std::vector<OldLane> oldest_lanes() const {
        std::vector<OldLane> lanes;
        for (Transfer *transfer : {front_.get(), next_.get()}) {
            for (std::uint32_t lane = 0; transfer != nullptr && lane < transfer->slice.lanes(); ++lane) {
                if (transfer->slice.outstanding(lane))
                    lanes.push_back({transfer->sent[lane].at_ns, transfer == next_.get(), lane, transfer});
            }
        }
        const auto end = lanes.begin() + static_cast<std::ptrdiff_t>(std::min(kProbes, lanes.size()));
        std::partial_sort(lanes.begin(), end, lanes.end());
        lanes.erase(end, lanes.end());
        return lanes;
    }

    SlotRing ring_;  // of the slice that begins next
    std::uint32_t packet_numel_;
    std::uint32_t num_workers_;
    RoundTrips &trips_;
    bool overlaps_;
    std::unique_ptr<Transfer> front_;
    std::unique_ptr<Transfer> next_;
    std::exception_ptr difference_;        // what the workers' jobs of the next slice differ in
    std::int64_t newest_answered_ns_ = 0;  // when the latest-sent packet that was answered was sent
    bool answered_since_look_ = false;
    std::int64_t looked_ns_ = 0;
    std::int64_t timed_ns_ = -1;
    std::int64_t timeout_ns_ = 0;
    std::int64_t deadline_ns_ = 0;
};

}  // namespace switchml::udp
