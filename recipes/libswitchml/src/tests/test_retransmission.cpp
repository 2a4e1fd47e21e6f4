// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <vector>

#include "udp/pipeline.hpp"
#include "udp/retransmission.hpp"
#include "wire/check.hpp"
#include "wire/packet.hpp"

using namespace switchml;
using namespace switchml::udp;

namespace {

constexpr std::uint32_t kNumel = 64;
constexpr std::int64_t kUs = 1000;
constexpr std::int64_t kMs = 1000 * kUs;
constexpr std::int64_t kFirstNs = 10 * kMs;
const RetransmitTimes kTimes = RetransmitTimes::from_first(kFirstNs);

// A slice of integers whose answers a test gives.
struct Flow {
    Flow(std::uint64_t data_units, std::uint32_t window, RoundTrips &trips)
        : values(data_units * kNumel, 1), pipeline(SlotRing(0, window), kNumel, 1, trips, true) {
        pipeline.begin(data(), 0, [this](const Slice &, std::uint32_t unit) { sent.push_back(unit); });
    }

    SliceData data() {
        SliceData wanted;
        wanted.in = values.data();
        wanted.out = values.data();
        wanted.numel = values.size();
        wanted.job = {values.size(), SWITCHML_INT32, 0};
        return wanted;
    }

    // The result of a unit comes; what that releases is sent.
    void answer(std::uint32_t unit, std::int64_t now_ns) {
        std::vector<std::uint8_t> packet(wire::packet_bytes(kNumel));
        pipeline.front().build(unit, packet.data());
        const auto send = [this](const Slice &, std::uint32_t next) { sent.push_back(next); };
        CHECK(pipeline.take(packet.data(), packet.size(), now_ns, send));
    }

    std::vector<std::uint32_t> lost_at(std::int64_t now_ns) {
        std::vector<std::uint32_t> again;
        pipeline.resend_lost(now_ns, [&](const Slice &, std::uint32_t unit) { again.push_back(unit); });
        return again;
    }

    std::vector<std::int32_t> values;
    Pipeline pipeline;
    std::vector<std::uint32_t> sent;
};

// Of a thread that has known round trips of so long.
RoundTrips settled(std::int64_t trip_ns) {
    RoundTrips trips(kTimes, true);
    for (int i = 0; i < 100; ++i) trips.note(trip_ns, false);
    return trips;
}

using Units = std::vector<std::uint32_t>;

}  // namespace

TEST(the_time_out_follows_round_trips_between_a_floor_and_the_setting) {
    RoundTrips trips(kTimes, true);
    CHECK_EQ(trips.timeout_ns(), kFirstNs);
    CHECK_EQ(settled(20 * kUs).timeout_ns(), 200 * kUs);
    CHECK(settled(kMs).timeout_ns() < 2 * kMs);
    CHECK(settled(kMs).timeout_ns() >= kMs);
    CHECK_EQ(settled(60 * kMs).timeout_ns(), kFirstNs);
}

TEST(waiting_for_a_worker_that_begins_late_is_no_round_trip) {
    RoundTrips trips = settled(kMs);
    const std::int64_t before = trips.timeout_ns();
    trips.note(9 * kMs, true);
    CHECK_EQ(trips.timeout_ns(), before);
    trips.note(500 * kUs, true);
    CHECK(trips.reordering_ns() < settled(kMs).reordering_ns());
}

TEST(a_switch_that_compares_no_numbers_keeps_the_setting) {
    RoundTrips trips(kTimes, false);
    trips.note(20 * kUs, false);
    CHECK_EQ(trips.timeout_ns(), kFirstNs);
    CHECK_EQ(trips.reordering_ns(), kFirstNs);
}

TEST(a_packet_that_later_ones_overtook_is_sent_again_before_any_time_out) {
    RoundTrips trips = settled(400 * kUs);
    Flow flow(40, 4, trips);
    CHECK(flow.sent == Units({0, 1, 2, 3}));
    for (const std::uint32_t unit : {0U, 2U, 3U}) flow.answer(unit, 300 * kUs);  // 1 was lost
    CHECK(flow.sent == Units({0, 1, 2, 3, 4, 6, 7}));
    CHECK(flow.lost_at(310 * kUs).empty());  // sent together with those: it may only be late
    flow.answer(4, 600 * kUs);
    CHECK(flow.pipeline.next_look_ns() <= 600 * kUs);
    CHECK(flow.lost_at(600 * kUs) == Units({1}));
    CHECK(flow.lost_at(601 * kUs).empty());
    for (const std::uint32_t unit : {6U, 7U}) flow.answer(unit, 650 * kUs);
    flow.answer(8, 900 * kUs);
    CHECK(flow.lost_at(900 * kUs).empty());  // sent with the repeated one
    for (const std::uint32_t unit : {10U, 11U}) flow.answer(unit, 1000 * kUs);
    flow.answer(12, 1200 * kUs);
    CHECK(flow.lost_at(1200 * kUs) == Units({1}));  // lost once more
}

TEST(where_nothing_comes_a_few_are_sent_at_doubling_times) {
    RoundTrips trips(kTimes, true);
    Flow flow(100, 64, trips);
    CHECK(flow.lost_at(kFirstNs - 1).empty());
    CHECK_EQ(flow.pipeline.next_look_ns(), kFirstNs);
    CHECK(flow.lost_at(kFirstNs) == Units({0, 1, 2, 3, 4, 5, 6, 7}));
    CHECK_EQ(flow.pipeline.next_look_ns(), 3 * kFirstNs);
    CHECK(flow.lost_at(3 * kFirstNs) == Units({8, 9, 10, 11, 12, 13, 14, 15}));
    CHECK_EQ(flow.pipeline.next_look_ns(), 7 * kFirstNs);
    std::int64_t gap = 0;
    for (int i = 0; i < 10; ++i) {
        const std::int64_t look = flow.pipeline.next_look_ns();
        CHECK_EQ(flow.lost_at(look).size(), 8U);
        gap = flow.pipeline.next_look_ns() - look;
    }
    CHECK_EQ(gap, kTimes.longest_ns);
}

TEST(a_lost_window_is_found_by_the_first_packets_that_follow_an_answer) {
    RoundTrips trips = settled(400 * kUs);
    Flow flow(100, 32, trips);  // all of it lost
    const std::int64_t out = flow.pipeline.next_look_ns();
    CHECK_EQ(flow.lost_at(out).size(), 8U);
    flow.answer(0, out + 400 * kUs);  // of the eight; which packet was answered nobody knows
    CHECK(flow.lost_at(out + 400 * kUs).empty());
    flow.answer(32, out + 800 * kUs);  // sent after the first answer
    CHECK_EQ(flow.lost_at(out + 800 * kUs).size(), 31U);
}

TEST(a_worker_that_comes_late_makes_nobody_repeat_a_window) {
    RoundTrips trips = settled(400 * kUs);
    Flow flow(100, 32, trips);
    std::size_t again = 0;
    const std::int64_t arrival = 50 * kMs;
    while (flow.pipeline.next_look_ns() < arrival) again += flow.lost_at(flow.pipeline.next_look_ns()).size();
    for (std::uint32_t unit = 0; unit < 32; ++unit) flow.answer(unit, arrival);
    again += flow.lost_at(arrival).size();
    CHECK(again <= 8 * 8);
    CHECK_EQ(flow.pipeline.front().received(), 32U);
}

CHECK_MAIN()
