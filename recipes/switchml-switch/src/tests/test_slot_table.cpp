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

namespace {

// Two workers of one thread with a window of 4, numbered from 1000: slot 1 is used by packets 1001, 1005, 1009 ...
struct Numbered : Table {
    Numbered() : Table(2) { slots.reset(2, kNumel, Numbering{1000, 4, 1}); }

    Verdict send(std::uint32_t rank, std::uint32_t number, std::int32_t value) {
        const std::uint32_t position = (number - 1000) % 8;
        return at(rank, static_cast<std::uint16_t>(position % 4), position >= 4, number, value);
    }

    Verdict at(std::uint32_t rank, std::uint16_t slot, bool set, std::uint32_t number, std::int32_t value) {
        const std::vector<std::int32_t> values(kNumel, value);
        std::vector<std::uint8_t> wire(4 * kNumel);
        wire::value_kernels().store(wire.data(), values.data(), kNumel);
        return slots.update({rank, slot, set, 0, 0, wire.data(), number});
    }
};

}  // namespace

// Seen with the published rules: 201 for 300, a duplicate of an acknowledged packet counted as the next use of its
// slot.
TEST(a_late_duplicate_is_no_contribution_to_the_next_use) {
    Numbered table;
    table.send(0, 1001, 1);
    expect(table.send(1, 1001, 1), Verdict::kCompleted);
    table.send(0, 1005, 5);
    expect(table.send(1, 1005, 5), Verdict::kCompleted);
    expect(table.send(0, 1009, 100), Verdict::kAccumulated);
    expect(table.send(1, 1001, 101), Verdict::kStale);
    expect(table.send(1, 1009, 200), Verdict::kCompleted);
    CHECK_EQ(table.value(1, false), 300);
    expect(table.send(1, 1001, 101), Verdict::kStale);
    CHECK_EQ(table.value(1, false), 300);
}

TEST(the_result_before_is_kept_for_who_lost_it) {
    Numbered table;
    table.send(0, 1001, 1);
    table.send(1, 1001, 2);
    expect(table.send(0, 1005, 10), Verdict::kAccumulated);
    expect(table.send(1, 1001, 2), Verdict::kRepeated);
    CHECK_EQ(table.value(1, false), 3);
    expect(table.send(0, 1005, 10), Verdict::kDuplicate);
    expect(table.send(1, 1005, 20), Verdict::kCompleted);
    CHECK_EQ(table.value(1, true), 30);
}

TEST(what_is_not_due_is_stale) {
    Numbered table;
    expect(table.send(0, 1005, 1), Verdict::kStale);          // before the slot's first use
    expect(table.send(0, 997, 1), Verdict::kStale);           // of an older session
    expect(table.at(0, 1, true, 1001, 1), Verdict::kStale);   // on the other set
    expect(table.at(0, 2, false, 1001, 1), Verdict::kStale);  // in another slot
    expect(table.at(0, 4, false, 1004, 1), Verdict::kStale);  // in a slot that no thread uses
    expect(table.at(0, 8191, false, 1001, 1), Verdict::kStale);
    expect(table.send(0, 1001, 1), Verdict::kAccumulated);
    expect(table.send(0, 1005, 1), Verdict::kStale);  // ahead of an open use
}

TEST(numbers_wrap_at_32_bits) {
    Numbered table;
    table.slots.reset(1, kNumel, Numbering{0xFFFFFFFE, 2, 1});
    for (std::uint32_t packet = 0; packet < 9; ++packet) {
        const auto slot = static_cast<std::uint16_t>(packet % 2);
        expect(table.at(0, slot, packet % 4 >= 2, 0xFFFFFFFE + packet, 7), Verdict::kCompleted);
    }
}

CHECK_MAIN()
