// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "faults.hpp"
#include "wire/check.hpp"

using namespace switchml;
using namespace switchml::softswitch;

namespace {

using Fate = FaultyLink::Fate;
using Time = FaultyLink::Clock::time_point;

constexpr double kAlways = 0.999999;
constexpr Time kStart{std::chrono::hours(1)};
constexpr wire::Endpoint kSource{0x7F000001, 4000};

Fate admit(FaultyLink &link, std::uint8_t content, Time now = kStart) { return link.admit(kSource, &content, 1, now); }

std::vector<int> contents_due(FaultyLink &link, Time now) {
    std::vector<int> contents;
    for (const auto &packet : link.due(now)) {
        CHECK_EQ(wire::to_text(packet.endpoint), wire::to_text(kSource));
        contents.push_back(packet.bytes.at(0));
    }
    return contents;
}

FaultRates all_faults() {
    FaultRates rates;
    rates.drop = rates.duplicate = rates.delay = rates.reorder = 0.25;
    return rates;
}

std::string history(std::uint64_t seed) {
    FaultyLink link(all_faults(), seed);
    std::string text;
    for (int i = 0; i < 200; ++i) {
        const Time now = kStart + std::chrono::milliseconds(i);
        text += std::to_string(static_cast<int>(admit(link, static_cast<std::uint8_t>(i), now)));
        for (const int content : contents_due(link, now)) text += "," + std::to_string(content);
    }
    return text;
}

}  // namespace

TEST(without_rates_nothing_happens) {
    FaultyLink link({}, 1);
    CHECK(!link.active());
    CHECK(admit(link, 1) == Fate::kDelivered);
    CHECK(!link.next_due());
}

TEST(a_dropped_packet_does_not_come_twice) {
    FaultRates rates;
    rates.drop = rates.duplicate = kAlways;
    FaultyLink link(rates, 1);
    CHECK(admit(link, 1) == Fate::kDropped);
    CHECK(!link.next_due());
    CHECK_EQ(link.counters().dropped, 1U);
    CHECK_EQ(link.counters().duplicated, 0U);
}

TEST(a_duplicate_is_due_at_once) {
    FaultRates rates;
    rates.duplicate = kAlways;
    FaultyLink link(rates, 1);
    CHECK(admit(link, 7) == Fate::kDelivered);
    CHECK(contents_due(link, kStart) == std::vector<int>{7});
    CHECK(contents_due(link, kStart).empty());
}

TEST(a_delay_is_not_longer_than_asked_for) {
    FaultRates rates;
    rates.delay = kAlways;
    rates.longest_delay = std::chrono::milliseconds(30);
    FaultyLink link(rates, 1);
    for (std::uint8_t i = 0; i < 100; ++i) CHECK(admit(link, i) == Fate::kHeld);
    CHECK(*link.next_due() >= kStart);
    const std::size_t half = contents_due(link, kStart + std::chrono::milliseconds(15)).size();
    CHECK(half > 25 && half < 75);
    CHECK_EQ(contents_due(link, kStart + std::chrono::milliseconds(30)).size(), 100 - half);
    CHECK_EQ(link.counters().delayed, 100U);
}

TEST(a_reordered_packet_is_overtaken_but_does_not_wait_for_ever) {
    FaultRates rates;
    rates.reorder = 0.5;
    FaultyLink link(rates, 1);
    while (admit(link, 1) == Fate::kDelivered) {
    }
    CHECK(contents_due(link, kStart).empty());
    for (int i = 0; i < 8; ++i) admit(link, 2);
    const std::vector<int> overtaken = contents_due(link, kStart);
    CHECK(!overtaken.empty());
    CHECK_EQ(overtaken.at(0), 1);
    while (admit(link, 3) == Fate::kDelivered) {
    }
    CHECK_EQ(contents_due(link, *link.next_due() + std::chrono::milliseconds(5)).back(), 3);
    CHECK(!link.next_due());
}

TEST(what_finds_no_place_is_delivered) {
    FaultRates rates;
    rates.delay = kAlways;
    FaultyLink link(rates, 1);
    std::size_t held = 0;
    while (admit(link, 1) == Fate::kHeld) ++held;
    CHECK(held > 65000 && held <= 65536);
    CHECK_EQ(link.counters().delayed, held);
    link.clear();
    CHECK(admit(link, 1) == Fate::kHeld);
}

TEST(faults_follow_the_seed) {
    CHECK_EQ(history(5), history(5));
    CHECK(history(5) != history(6));
}

CHECK_MAIN()
