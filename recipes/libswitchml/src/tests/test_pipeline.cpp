// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <functional>
#include <vector>

#include "error.hpp"
#include "udp/description.hpp"
#include "udp/pipeline.hpp"
#include "udp/retransmission.hpp"
#include "wire/check.hpp"
#include "wire/packet.hpp"

using namespace switchml;
using namespace switchml::udp;

namespace {

constexpr std::uint32_t kNumel = 64;
constexpr std::uint32_t kWindow = 4;
constexpr std::int64_t kUs = 1000;

using Numbers = std::vector<std::uint32_t>;

// Jobs of integers of one worker, whose packets' own values are the results. Packets go by their numbers in the
// session.
struct Thread {
    explicit Thread(bool overlaps = true)
        : trips(RetransmitTimes::from_first(10'000 * kUs), true),
          pipeline(SlotRing(0, kWindow), kNumel, 1, trips, overlaps) {
        for (int i = 0; i < 100; ++i) trips.note(400 * kUs, false);
    }

    // A job of so many packets, its description among them.
    void begin(std::uint32_t packets, std::int64_t now_ns = 0) {
        values.emplace_back((packets - 1) * kNumel, 1);
        SliceData data;
        data.in = data.out = values.back().data();
        data.numel = values.back().size();
        data.job = {data.numel, SWITCHML_INT32, static_cast<std::uint16_t>(values.size())};
        pipeline.begin(data, now_ns, send);
    }

    Numbers answer(std::uint32_t number, std::int64_t now_ns = 0) {
        sent.clear();
        CHECK(pipeline.take(packets.at(number).data(), packets.at(number).size(), now_ns, send));
        return sent;
    }

    Numbers lost_at(std::int64_t now_ns) {
        sent.clear();
        pipeline.resend_lost(now_ns, send);
        return sent;
    }

    std::vector<std::vector<std::int32_t>> values;
    RoundTrips trips;
    Pipeline pipeline;
    Numbers sent;
    std::vector<std::vector<std::uint8_t>> packets = std::vector<std::vector<std::uint8_t>>(100);
    std::function<void(const Slice &, std::uint32_t)> send = [this](const Slice &slice, std::uint32_t unit) {
        const std::uint32_t number = slice.ring().number(unit);
        packets.at(number).resize(wire::packet_bytes(kNumel));
        slice.build(unit, packets.at(number).data());
        sent.push_back(number);
    };
};

}  // namespace

TEST(a_job_begins_in_the_slots_that_the_one_ahead_has_done_with) {
    Thread thread;
    thread.begin(6);
    CHECK(thread.sent == Numbers({0, 1, 2, 3}));
    CHECK(!thread.pipeline.has_room());  // its own packets fill the window
    CHECK(thread.answer(0) == Numbers({4}));
    CHECK(thread.answer(1) == Numbers({5}));
    CHECK(thread.answer(3).empty());
    CHECK(thread.pipeline.has_room());
    thread.sent.clear();
    thread.begin(6);
    CHECK(thread.sent == Numbers({7}));  // in the slot of 3; those of 6, 8 and 9 wait for 2, 4 and 5
    CHECK(!thread.pipeline.has_room());
    CHECK(thread.answer(4) == Numbers({8}));
    CHECK(thread.answer(2) == Numbers({6}));
    CHECK(thread.answer(6) == Numbers({10}));  // before the first job's end
    CHECK(!thread.pipeline.front().complete());
    CHECK(thread.answer(5) == Numbers({9}));
    CHECK(thread.pipeline.front().complete());
    thread.pipeline.drop_front();
    CHECK(thread.answer(7) == Numbers({11}));
    for (const std::uint32_t number : {8U, 9U, 10U, 11U}) CHECK(thread.answer(number).empty());
    CHECK(thread.pipeline.front().complete());
    thread.pipeline.drop_front();
    CHECK(thread.pipeline.idle());
}

TEST(jobs_that_are_shorter_than_the_window_follow_each_other) {
    Thread thread;
    thread.begin(2);
    CHECK(thread.sent == Numbers({0, 1}));
    thread.sent.clear();
    thread.begin(2);
    CHECK(thread.sent == Numbers({2, 3}));  // slots that nobody used
    for (const std::uint32_t number : {2U, 3U, 0U, 1U}) CHECK(thread.answer(number).empty());
    thread.pipeline.drop_front();
    CHECK(thread.pipeline.front().complete());
    thread.begin(3);
    CHECK(thread.sent == Numbers({4, 5, 6}));
}

TEST(the_last_packets_of_a_job_are_overtaken_by_those_of_the_next) {
    Thread thread;
    thread.begin(5);
    for (const std::uint32_t number : {0U, 1U, 2U}) thread.answer(number, 300 * kUs);  // 3 was lost
    thread.begin(5, 300 * kUs);
    CHECK(thread.lost_at(310 * kUs).empty());
    thread.answer(5, 700 * kUs);  // sent after 3, and answered
    CHECK(thread.lost_at(700 * kUs) == Numbers({3}));
    CHECK(thread.lost_at(701 * kUs).empty());
}

TEST(what_the_second_job_differs_in_is_told_when_the_first_has_ended) {
    Thread thread;
    thread.begin(3);
    thread.begin(3);
    std::vector<std::uint8_t> &packet = thread.packets.at(3);
    write_description({7, SWITCHML_FLOAT32, 2}, 0, packet.data() + wire::kHeaderBytes, kNumel);
    thread.answer(3);
    for (const std::uint32_t number : {0U, 1U, 2U}) thread.answer(number);
    CHECK(thread.pipeline.front().complete());
    try {
        thread.pipeline.drop_front();
    } catch (const Error &error) {
        CHECK_EQ(error.status(), SWITCHML_EMISMATCH);
        CHECK_MENTIONS(error.what(), "rank 0: 7 float32 elements as job 2");
        return;
    }
    CHECK(false);
}

TEST(jobs_take_turns_where_the_switch_compares_no_numbers) {
    Thread thread(false);
    thread.begin(2);
    CHECK(!thread.pipeline.has_room());
    thread.answer(0);
    CHECK(!thread.pipeline.has_room());
    thread.answer(1);
    thread.pipeline.drop_front();
    CHECK(thread.pipeline.has_room());
}

CHECK_MAIN()
