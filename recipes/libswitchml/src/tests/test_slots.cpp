// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "udp/description.hpp"
#include "udp/slice.hpp"
#include "udp/slots.hpp"
#include "wire/check.hpp"
#include "wire/packet.hpp"
#include "wire/values.hpp"

using namespace switchml;
using namespace switchml::udp;

namespace {

constexpr std::uint32_t kNumel = 64;

std::vector<std::uint8_t> built(const Slice &slice, std::uint32_t unit) {
    std::vector<std::uint8_t> packet(wire::packet_bytes(kNumel));
    slice.build(unit, packet.data());
    return packet;
}

// A switch with one worker: the packet itself is the result.
bool echo(Slice &slice, std::uint32_t unit) {
    const auto packet = built(slice, unit);
    const auto taken = slice.accept(*wire::decode(packet.data(), packet.size()), packet.data() + wire::kHeaderBytes);
    CHECK(!taken || *taken == unit);
    return taken.has_value();
}

struct FloatSlice {
    explicit FloatSlice(std::uint64_t data_units, std::uint32_t window)
        : values(data_units * kNumel, 1.5F), ring(0, window, 0xFFFFFFFE), slice(data(), ring, kNumel, 1) {}

    SliceData data() {
        SliceData wanted;
        wanted.in = values.data();
        wanted.out = values.data();
        wanted.numel = values.size();
        wanted.job = {values.size(), SWITCHML_FLOAT32, 9};
        return wanted;
    }

    std::vector<float> values;
    SlotRing ring;
    Slice slice;
};

}  // namespace

TEST(positions_follow_the_published_ring) {
    const SlotRing ring(3, 4);  // thread 3 owns slots 24..31 and uses 24..27
    for (std::uint32_t unit = 0; unit < 20; ++unit) {
        CHECK_EQ(ring.place(unit).slot, 24 + unit % 4);
        CHECK_EQ(ring.place(unit).set, unit % 8 >= 4);
    }
}

TEST(every_slot_alternates_its_set_over_all_slices) {
    for (const std::uint32_t window : {1U, 2U, 3U, 5U, 8U}) {
        SlotRing ring(1, window);
        std::map<std::uint16_t, bool> latest;
        for (const std::uint32_t units : {1U, 2U, 3U, 7U, 1U, 16U, 5U, 0U, 31U, 4U}) {
            for (std::uint32_t unit = 0; unit < units; ++unit) {
                const Place place = ring.place(unit);
                const auto known = latest.find(place.slot);
                CHECK(known == latest.end() ? !place.set : known->second != place.set);
                latest[place.slot] = place.set;
            }
            ring.advance(units);
        }
    }
}

TEST(the_highest_thread_stays_below_8192_slots) {
    const SlotRing ring(31, 4096 / 32);
    for (std::uint32_t unit = 0; unit < 256; ++unit) CHECK(ring.place(unit).slot < wire::kNumSlots);
    const SlotRing alone(0, 4096);
    for (std::uint32_t unit = 0; unit < 8192; ++unit) CHECK(alone.place(unit).slot < wire::kNumSlots);
}

TEST(a_job_is_cut_into_contiguous_parts_the_first_ones_longer) {
    for (const std::uint64_t numel : {0U, 1U, 2U, 10U, 11U, 12U, 1000003U}) {
        for (const std::uint32_t threads : {1U, 3U, 4U}) {
            std::uint64_t next = 0;
            for (std::uint32_t thread = 0; thread < threads; ++thread) {
                const Part part = part_of(numel, threads, thread);
                CHECK_EQ(part.first, next);
                CHECK_EQ(part.numel, numel / threads + (thread < numel % threads ? 1 : 0));
                next += part.numel;
            }
            CHECK_EQ(next, numel);
        }
    }
}

TEST(float32_takes_one_window_more_than_its_data_and_int32_one_packet) {
    CHECK_EQ(count_units(0, SWITCHML_FLOAT32, 64, 8), 1U);  // the description
    CHECK_EQ(count_units(1, SWITCHML_FLOAT32, 64, 8), 2U);
    CHECK_EQ(count_units(64 * 20, SWITCHML_FLOAT32, 64, 8), 28U);
    CHECK_EQ(count_units(64 * 20 + 1, SWITCHML_INT32, 64, 8), 22U);
    CHECK_EQ(count_units(0, SWITCHML_INT32, 64, 8), 1U);
}

TEST(a_result_releases_the_unit_one_window_later_only) {
    FloatSlice test(6, 4);
    for (std::uint32_t unit = 0; unit < 4; ++unit) {
        CHECK(test.slice.ready(unit));
        test.slice.mark_sent(unit);
        CHECK(!test.slice.ready(unit));
    }
    CHECK(!test.slice.ready(4));
    CHECK(echo(test.slice, 1));
    CHECK(test.slice.ready(5));
    CHECK(!test.slice.ready(4));
}

// With 3 data units in a window of 4, unit 4 uses slot 0 again while its data
// depends on unit 1 alone. Sent before unit 0's result is here, it would tell the
// switch that the result has arrived.
TEST(a_slot_is_used_again_only_after_its_result_has_arrived) {
    FloatSlice test(3, 4);
    CHECK_EQ(test.slice.lanes(), 3U);
    CHECK_EQ(test.slice.units(), 6U);
    for (std::uint32_t unit = 0; unit < 3; ++unit) test.slice.mark_sent(unit);
    CHECK(echo(test.slice, 1));
    CHECK_EQ(test.ring.place(4).slot, test.ring.place(0).slot);
    CHECK(!test.slice.ready(4));
    CHECK(echo(test.slice, 0));
    CHECK(test.slice.ready(4));
    CHECK(test.slice.ready(3));
}

TEST(results_that_are_not_awaited_are_refused) {
    FloatSlice test(2, 4);
    test.slice.mark_sent(0);
    const auto packet = built(test.slice, 0);
    const auto header = *wire::decode(packet.data(), packet.size());
    const std::uint8_t *values = packet.data() + wire::kHeaderBytes;
    const auto refused = [&](auto &&change) {
        wire::Header other = header;
        change(other);
        return !test.slice.accept(other, values).has_value();
    };
    CHECK(refused([](wire::Header &h) { h.packet += 1; }));
    CHECK(refused([](wire::Header &h) { h.packet += 1000; }));
    CHECK(refused([](wire::Header &h) { h.packet -= 4; }));  // the slot's use before, of an earlier job
    CHECK(refused([](wire::Header &h) { h.slot = 1; }));
    CHECK(refused([](wire::Header &h) { h.set = true; }));
    CHECK(refused([](wire::Header &h) { h.size_class = 3; }));
    CHECK(test.slice.accept(header, values).has_value());
    CHECK(!test.slice.accept(header, values).has_value());  // a duplicate
}

TEST(an_in_place_slice_keeps_its_input_until_the_result) {
    FloatSlice test(2, 1);  // one lane: units 0, 1, 2
    for (std::uint32_t unit = 0; unit < 3; ++unit) {
        CHECK(test.slice.ready(unit));
        test.slice.mark_sent(unit);
        const auto first = built(test.slice, unit);
        CHECK(first == built(test.slice, unit));  // what a retransmission would send
        CHECK(echo(test.slice, unit));
    }
    CHECK(test.slice.complete());
    for (const float value : test.values) CHECK_EQ(value, 1.5F);
}

// Few elements come with the description, where they fit behind it: 22 for 2 workers in packets of 256.
TEST(few_elements_take_one_packet) {
    const auto units = [](std::uint64_t numel, std::uint32_t packet_numel, std::uint32_t workers,
                          switchml_dtype dtype) {
        SliceData data;
        data.numel = numel;
        data.job = {numel, dtype, 0};
        return Slice(data, SlotRing(0, 8), packet_numel, workers).units();
    };
    CHECK_EQ(units(1, 256, 2, SWITCHML_FLOAT32), 1U);
    CHECK_EQ(units(22, 256, 2, SWITCHML_FLOAT32), 1U);
    CHECK_EQ(units(23, 256, 2, SWITCHML_FLOAT32), 2U);
    CHECK_EQ(units(17, 256, 32, SWITCHML_FLOAT32), 1U);
    CHECK_EQ(units(18, 256, 32, SWITCHML_FLOAT32), 2U);
    CHECK_EQ(units(5, 64, 2, SWITCHML_FLOAT32), 1U);
    CHECK_EQ(units(6, 64, 2, SWITCHML_FLOAT32), 2U);
    CHECK_EQ(units(1, 64, 32, SWITCHML_FLOAT32), 2U);  // the descriptions fill the packet
    CHECK_EQ(units(0, 256, 2, SWITCHML_FLOAT32), 1U);
    CHECK_EQ(units(1, 256, 2, SWITCHML_INT32), 2U);
}

namespace {

// Of a single worker, out of place.
std::vector<float> reduce_few(const std::vector<float> &values) {
    std::vector<float> sums(values.size(), 77.0F);
    SliceData data;
    data.in = values.data();
    data.out = sums.data();
    data.numel = values.size();
    data.job = {values.size(), SWITCHML_FLOAT32, 4};
    Slice slice(data, SlotRing(0, 8), kNumel, 1);
    slice.mark_sent(0);
    CHECK(built(slice, 0) == built(slice, 0));  // what a retransmission would send
    CHECK(echo(slice, 0));
    CHECK(slice.complete());
    return sums;
}

}  // namespace

TEST(elements_beside_the_description_come_back) {
    const std::vector<float> values{1.5F, -0x1p-140F, 3e38F};
    CHECK(reduce_few(values) == values);
}

TEST(inf_or_nan_beside_the_description_makes_all_of_it_nan) {
    for (const float odd : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        for (const float sum : reduce_few({1.0F, odd})) CHECK(std::isnan(sum));
    }
}

namespace {

std::string difference_between(const Description &first, const Description &second, const Description &third) {
    const Description all[] = {first, second, third};
    std::vector<std::int32_t> sums(kNumel, 0);
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        std::vector<std::uint8_t> packet(4 * kNumel);
        write_description(all[rank], rank, packet.data(), kNumel);
        wire::value_kernels().add(sums.data(), packet.data(), kNumel);
    }
    std::vector<std::uint8_t> result(4 * kNumel);
    wire::value_kernels().store(result.data(), sums.data(), kNumel);
    const auto text = find_difference(first, result.data(), 3);
    for (const auto &own : all) CHECK_EQ(find_difference(own, result.data(), 3).has_value(), text.has_value());
    return text.value_or("");
}

}  // namespace

TEST(a_rank_whose_job_differs_is_named_with_what_it_has) {
    const Description job{1000, SWITCHML_FLOAT32, 7};
    CHECK_EQ(difference_between(job, job, job), "");
    const std::string numel = difference_between(job, {1001, SWITCHML_FLOAT32, 7}, job);
    CHECK_MENTIONS(numel, "rank 0, 2: 1000 float32 elements as job 7");
    CHECK_MENTIONS(numel, "rank 1: 1001 float32 elements as job 7");
    CHECK_MENTIONS(difference_between(job, job, {1000, SWITCHML_INT32, 7}), "rank 2: 1000 int32");
    CHECK_MENTIONS(difference_between({1000, SWITCHML_FLOAT32, 6}, job, job), "rank 0: 1000 float32 elements as job 6");
    CHECK_MENTIONS(difference_between(job, {0, SWITCHML_FLOAT32, 7}, job), "rank 1: 0 float32");
    const std::uint64_t many = (std::uint64_t{1} << 44) - 1;
    CHECK_MENTIONS(difference_between({many, SWITCHML_INT32, 7}, job, job), std::to_string(many) + " int32");
    // Of which an older library knows nothing: it would send a packet more.
    CHECK_MENTIONS(difference_between({5, SWITCHML_FLOAT32, 7, true}, {5, SWITCHML_FLOAT32, 7}, job),
                   "rank 0: 5 exactly summed float32 elements as job 7");
}

TEST(the_descriptions_of_32_workers_fit_the_smallest_packet) {
    std::vector<std::int32_t> sums(kNumel, 0);
    for (std::uint32_t rank = 0; rank < 32; ++rank) {
        std::vector<std::uint8_t> packet(4 * kNumel);
        write_description({5, SWITCHML_INT32, 65535}, rank, packet.data(), kNumel);
        wire::value_kernels().add(sums.data(), packet.data(), kNumel);
    }
    std::vector<std::uint8_t> result(4 * kNumel);
    wire::value_kernels().store(result.data(), sums.data(), kNumel);
    CHECK(!find_difference({5, SWITCHML_INT32, 65535}, result.data(), 32));
}

CHECK_MAIN()
