// SPDX-License-Identifier: BSD-3-Clause
//
// Exact sums without a network, against integers as wide as float32's range.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "udp/exact.hpp"
#include "wire/check.hpp"
#include "wire/values.hpp"

using namespace switchml;
using namespace switchml::udp;

namespace {

using Limits = std::numeric_limits<float>;

// Multiples of 2^-149, in two's complement.
class Wide {
  public:
    void add(float value) {
        std::uint32_t bits;
        std::memcpy(&bits, &value, 4);
        const std::uint32_t field = bits >> 23 & 0xFF;
        const std::uint32_t fraction = bits & 0x7FFFFF;
        const std::uint32_t shift = field == 0 ? 0 : field - 1;
        Wide addend;
        for (std::uint32_t bit = 0; bit < 24; ++bit) {
            const bool set = bit < 23 ? (fraction >> bit & 1U) != 0 : field != 0;
            if (set) addend.limbs_[(shift + bit) / 32] |= 1U << (shift + bit) % 32;
        }
        add(value < 0 ? addend.negated() : addend);
    }

    void add(const Wide &other) {
        std::uint64_t carry = 0;
        for (std::size_t i = 0; i < limbs_.size(); ++i) {
            carry += std::uint64_t{limbs_[i]} + other.limbs_[i];
            limbs_[i] = static_cast<std::uint32_t>(carry);
            carry >>= 32;
        }
    }

    Wide negated() const {
        Wide result;
        for (std::size_t i = 0; i < limbs_.size(); ++i) result.limbs_[i] = ~limbs_[i];
        Wide one;
        one.limbs_[0] = 1;
        result.add(one);
        return result;
    }

    Wide magnitude() const { return limbs_.back() >> 31 != 0 ? negated() : *this; }

    bool operator<(const Wide &other) const {
        return std::lexicographical_compare(limbs_.rbegin(), limbs_.rend(), other.limbs_.rbegin(), other.limbs_.rend());
    }

  private:
    std::array<std::uint32_t, 10> limbs_{};  // the least first
};

// How far a float is from the sum.
Wide distance(const Wide &sum, float value) {
    Wide result = sum;
    result.add(-value);
    return result.magnitude();
}

void check_nearest(const std::vector<float> &addends, float found) {
    Wide sum;
    for (const float addend : addends) sum.add(addend);
    if (std::isinf(found)) {
        const float largest = std::copysign(Limits::max(), found);
        Wide beyond = sum;
        beyond.add(-largest);
        // Half a unit or more beyond the largest float.
        CHECK(!(beyond.magnitude() < distance(Wide(), 0x1p103F)));
        return;
    }
    std::uint32_t bits;
    std::memcpy(&bits, &found, 4);
    const Wide error = distance(sum, found);
    for (const float towards : {-Limits::infinity(), Limits::infinity()}) {
        const float neighbour = std::nextafter(found, towards);
        if (std::isinf(neighbour)) continue;
        const Wide other = distance(sum, neighbour);
        CHECK(!(other < error));
        if (!(error < other)) CHECK_EQ(bits & 1U, 0U);  // a tie goes to the even one
    }
}

// What the workers and the switch do to one element.
float sum_on_the_wire(const std::vector<float> &addends) {
    std::array<std::int32_t, kDigits> sums{};
    std::vector<std::uint8_t> packet(4 * kDigits);
    for (const float addend : addends) {
        CHECK(write_exact(&addend, 1, packet.data()));
        std::array<std::int32_t, kDigits> digits{};
        wire::value_kernels().load(digits.data(), packet.data(), kDigits);
        for (std::uint32_t i = 0; i < kDigits; ++i) CHECK(!__builtin_add_overflow(sums[i], digits[i], &sums[i]));
    }
    wire::value_kernels().store(packet.data(), sums.data(), kDigits);
    float result = 0;
    read_exact(packet.data(), 1, &result);
    return result;
}

float float_from(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return std::isfinite(value) ? value : 1.0F;
}

}  // namespace

TEST(one_worker_gets_every_kind_of_float_back) {
    std::mt19937 random(1);
    std::vector<float> values{0.0F,
                              Limits::denorm_min(),
                              -Limits::denorm_min(),
                              Limits::min(),
                              Limits::max(),
                              -Limits::max(),
                              1.0F,
                              -1.0F,
                              0x1.fffffep-126F,
                              0x1p127F};
    for (int i = 0; i < 100000; ++i) values.push_back(float_from(static_cast<std::uint32_t>(random())));
    for (const float value : values) CHECK_EQ(sum_on_the_wire({value}), value);
}

TEST(sums_are_the_nearest_floats) {
    std::mt19937 random(2);
    for (const std::size_t workers : {2U, 3U, 7U, 32U}) {
        for (int round = 0; round < 20000; ++round) {
            // Of all magnitudes, or of nearly equal ones, which cancel and tie.
            const std::uint32_t spread = round % 4 == 0 ? 0xFFU : 3U * static_cast<std::uint32_t>(round % 4);
            const auto around = static_cast<std::uint32_t>(random());
            std::vector<float> addends;
            for (std::size_t i = 0; i < workers; ++i) {
                const auto bits = static_cast<std::uint32_t>(random());
                const std::uint32_t field = ((around & 0xFFU) + (bits >> 8) % spread) & 0xFFU;
                const std::uint32_t fraction = round % 3 == 0 ? bits & 0x700001U : bits & 0x7FFFFFU;
                addends.push_back(float_from((bits & 0x80000000U) | field << 23 | fraction));
            }
            check_nearest(addends, sum_on_the_wire(addends));
        }
    }
}

TEST(what_floats_would_lose_on_the_way_is_kept) {
    CHECK_EQ(sum_on_the_wire({1e30F, 1.0F, -1e30F}), 1.0F);
    CHECK_EQ(sum_on_the_wire({Limits::max(), Limits::max(), -Limits::max()}), Limits::max());
    CHECK_EQ(sum_on_the_wire({Limits::max(), Limits::denorm_min(), -Limits::max()}), Limits::denorm_min());
    CHECK_EQ(sum_on_the_wire({0x1p24F, 1.0F}), 0x1p24F);  // a tie, to even
    CHECK_EQ(sum_on_the_wire({0x1p24F, 1.0F, Limits::denorm_min()}), 0x1p24F + 2);
    CHECK_EQ(sum_on_the_wire({-0x1p24F, -1.0F, -Limits::denorm_min()}), -0x1p24F - 2);
}

TEST(a_sum_beyond_float32_is_infinite) {
    CHECK_EQ(sum_on_the_wire(std::vector<float>(32, Limits::max())), Limits::infinity());
    CHECK_EQ(sum_on_the_wire(std::vector<float>(32, -Limits::max())), -Limits::infinity());
    CHECK_EQ(sum_on_the_wire({Limits::max(), 0x1p102F}), Limits::max());
    CHECK_EQ(sum_on_the_wire({Limits::max(), 0x1p103F}), Limits::infinity());
}

TEST(elements_that_are_no_numbers_are_reported) {
    std::vector<std::uint8_t> packet(3 * 4 * kDigits);
    for (const float odd : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
        const float elements[] = {1.0F, odd, -2.0F};
        CHECK(!write_exact(elements, 3, packet.data()));
        float back[3];
        read_exact(packet.data(), 3, back);
        CHECK_EQ(back[0], 1.0F);
        CHECK_EQ(back[1], 0.0F);
        CHECK_EQ(back[2], -2.0F);
    }
}

// Of a switch that is none, or a packet that came damaged.
TEST(any_words_can_be_read) {
    std::mt19937 random(3);
    std::vector<std::uint8_t> packet(4 * kDigits);
    float value = 0;
    for (const std::uint8_t byte : {0x00, 0x7F, 0x80, 0xFF}) {
        std::fill(packet.begin(), packet.end(), byte);
        read_exact(packet.data(), 1, &value);
        CHECK(!std::isnan(value));
    }
    for (int i = 0; i < 100000; ++i) {
        for (auto &byte : packet) byte = static_cast<std::uint8_t>(random());
        read_exact(packet.data(), 1, &value);
        CHECK(!std::isnan(value));
    }
}

CHECK_MAIN()
