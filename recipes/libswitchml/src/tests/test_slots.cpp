// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <map>
#include <vector>

#include "udp/slice.hpp"
#include "udp/slots.hpp"
#include "wire/check.hpp"
#include "wire/packet.hpp"

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
    return slice.accept(*wire::decode(packet.data(), packet.size()), packet.data() + wire::kHeaderBytes);
}

struct FloatSlice {
    explicit FloatSlice(std::uint64_t data_units, std::uint32_t window)
        : values(data_units * kNumel, 1.5F), ring(0, window), slice(data(), ring, kNumel, 1) {}

    SliceData data() {
        SliceData wanted;
        wanted.in = values.data();
        wanted.out = values.data();
        wanted.numel = values.size();
        wanted.dtype = SWITCHML_FLOAT32;
        wanted.job = 9;
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

TEST(float32_takes_one_window_of_units_more_than_int32) {
    CHECK_EQ(count_units(0, SWITCHML_FLOAT32, 64, 8), 0U);
    CHECK_EQ(count_units(1, SWITCHML_FLOAT32, 64, 8), 2U);
    CHECK_EQ(count_units(64 * 20, SWITCHML_FLOAT32, 64, 8), 28U);
    CHECK_EQ(count_units(64 * 20 + 1, SWITCHML_INT32, 64, 8), 21U);
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
        return !test.slice.accept(other, values);
    };
    CHECK(refused([](wire::Header &h) { h.job = 8; }));
    CHECK(refused([](wire::Header &h) { h.packet = 1; }));
    CHECK(refused([](wire::Header &h) { h.packet = 1000; }));
    CHECK(refused([](wire::Header &h) { h.slot = 1; }));
    CHECK(refused([](wire::Header &h) { h.set = true; }));
    CHECK(refused([](wire::Header &h) { h.size_class = 3; }));
    CHECK(test.slice.accept(header, values));
    CHECK(!test.slice.accept(header, values));  // a duplicate
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

CHECK_MAIN()
