// SPDX-License-Identifier: BSD-3-Clause
//
// The state machine, case by case, and what stale packets do to it.
#include <cstdint>
#include <cstring>
#include <vector>

#include "slot_table.hpp"
#include "wire/check.hpp"
#include "wire/values.hpp"

using namespace switchml;
using namespace switchml::softswitch;

namespace {

constexpr std::uint32_t kNumel = 64;

struct Table {
    explicit Table(std::uint32_t workers) { slots.reset(workers, kNumel); }

    Verdict add(std::uint32_t rank, std::uint16_t slot, bool set, std::int32_t value, std::int8_t e0 = 0,
                std::int8_t e1 = 0) {
        const std::vector<std::int32_t> values(kNumel, value);
        std::vector<std::uint8_t> wire(4 * kNumel);
        wire::value_kernels().store(wire.data(), values.data(), kNumel);
        return slots.update({rank, slot, set, e0, e1, wire.data()});
    }

    std::int32_t value(std::uint16_t slot, bool set) {
        std::vector<std::uint8_t> wire(4 * kNumel);
        slots.read(slot, set, header, wire.data());
        std::vector<std::int32_t> values(kNumel);
        wire::value_kernels().load(values.data(), wire.data(), kNumel);
        CHECK_EQ(values.front(), values.back());
        return values.front();
    }

    SlotTable slots;
    wire::Header header;
};

void expect(Verdict actual, Verdict expected) { CHECK_EQ(static_cast<int>(actual), static_cast<int>(expected)); }

}  // namespace

TEST(the_last_worker_completes_a_slot) {
    Table table(3);
    expect(table.add(2, 5, false, 100, -3, 0), Verdict::kAccumulated);
    expect(table.add(0, 5, false, 20, 7, 1), Verdict::kAccumulated);
    expect(table.add(1, 5, false, 3, -128, 2), Verdict::kCompleted);
    CHECK_EQ(table.value(5, false), 123);
    CHECK_EQ(int{table.header.e0}, 7);
    CHECK_EQ(int{table.header.e1}, 2);
}

TEST(one_worker_is_answered_at_once) {
    Table table(1);
    expect(table.add(0, 0, false, 9), Verdict::kCompleted);
    expect(table.add(0, 0, true, 8), Verdict::kCompleted);
    expect(table.add(0, 0, false, 7), Verdict::kCompleted);
    CHECK_EQ(table.value(0, false), 7);
}

TEST(sums_wrap) {
    Table table(2);
    table.add(0, 0, false, 0x7FFFFFFF);
    expect(table.add(1, 0, false, 1), Verdict::kCompleted);
    CHECK_EQ(table.value(0, false), static_cast<std::int32_t>(0x80000000));
}

TEST(a_repeated_packet_is_not_counted_twice) {
    Table table(2);
    table.add(0, 0, false, 1);
    expect(table.add(0, 0, false, 1), Verdict::kDuplicate);
    expect(table.add(1, 0, false, 10), Verdict::kCompleted);
    CHECK_EQ(table.value(0, false), 11);
    expect(table.add(0, 0, false, 1), Verdict::kRepeated);
    expect(table.add(1, 0, false, 10), Verdict::kRepeated);
    CHECK_EQ(table.value(0, false), 11);
}

TEST(a_result_is_kept_while_others_use_the_other_set) {
    Table table(2);
    table.add(0, 0, false, 1);
    table.add(1, 0, false, 10);
    expect(table.add(0, 0, true, 2), Verdict::kAccumulated);  // worker 0 has the result, worker 1 lost it
    expect(table.add(1, 0, false, 10), Verdict::kRepeated);
    CHECK_EQ(table.value(0, false), 11);
    expect(table.add(1, 0, true, 20), Verdict::kCompleted);
    CHECK_EQ(table.value(0, true), 22);
    expect(table.add(0, 0, false, 3), Verdict::kAccumulated);  // overwrites the round before
    expect(table.add(1, 0, false, 30), Verdict::kCompleted);
    CHECK_EQ(table.value(0, false), 33);
}

TEST(slots_do_not_touch_each_other) {
    Table table(2);
    table.add(0, 0, false, 1);
    table.add(0, 8191, true, 2);
    expect(table.add(1, 8191, true, 3), Verdict::kCompleted);
    expect(table.add(1, 0, false, 4), Verdict::kCompleted);
    CHECK_EQ(table.value(8191, true), 5);
    CHECK_EQ(table.value(0, false), 5);
}

TEST(thirty_two_workers_fill_the_bitmap) {
    Table table(32);
    for (std::uint32_t rank = 0; rank < 31; ++rank) expect(table.add(rank, 1, false, 1), Verdict::kAccumulated);
    expect(table.add(31, 1, false, 1), Verdict::kCompleted);
    CHECK_EQ(table.value(1, false), 32);
}

TEST(a_reset_forgets_half_finished_rounds) {
    Table table(2);
    table.add(0, 0, false, 1);
    table.slots.reset(2, kNumel);
    expect(table.add(0, 0, false, 5), Verdict::kAccumulated);
    expect(table.add(1, 0, false, 6), Verdict::kCompleted);
    CHECK_EQ(table.value(0, false), 11);
}

CHECK_MAIN()
