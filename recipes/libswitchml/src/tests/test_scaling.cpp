// SPDX-License-Identifier: BSD-3-Clause
//
// The float32 arithmetic without a network: exponents, scales, and the error
// bound that switchml.h promises.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "udp/scaling.hpp"
#include "wire/check.hpp"
#include "wire/values.hpp"

using namespace switchml;
using namespace switchml::udp;

namespace {

using Limits = std::numeric_limits<float>;

Exponents exponents_of_value(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return exponents_of(bits & 0x7FFFFFFFU);
}

// What the workers and the switch do to one packet.
std::vector<float> reduce(const std::vector<std::vector<float>> &workers, Exponents &maximum) {
    const auto &kernels = wire::value_kernels();
    const std::size_t n = workers[0].size();
    maximum = {kLowestExponent, kPlain};
    for (const auto &values : workers) {
        const Exponents own = exponents_of(kernels.max_magnitude(values.data(), n));
        maximum = {std::max(maximum.e0, own.e0), std::max(maximum.e1, own.e1)};
    }
    const Scale scale = scale_for(maximum, static_cast<std::uint32_t>(workers.size()));
    std::vector<std::uint8_t> packet(4 * n);
    std::vector<std::int32_t> sums(n, 0);
    for (const auto &values : workers) {
        kernels.quantize(packet.data(), values.data(), n, scale.scale, scale.limit);
        std::vector<std::int32_t> addends(n);
        kernels.load(addends.data(), packet.data(), n);
        for (std::size_t i = 0; i < n; ++i) {
            CHECK(!__builtin_add_overflow(sums[i], addends[i], &sums[i]));  // no sum wraps
        }
    }
    std::vector<float> out(n);
    kernels.store(packet.data(), sums.data(), n);
    kernels.dequantize(out.data(), packet.data(), n, scale.inverse);
    return out;
}

int exponent_of(const Exponents &maximum) { return maximum.e1 == kExponent128 ? 128 : maximum.e0; }

void check_bound(const std::vector<std::vector<float>> &workers) {
    Exponents maximum{};
    const auto out = reduce(workers, maximum);
    const double n = static_cast<double>(workers.size());
    // switchml.h: n / 2 units of 2^(e + ceil(log2 n) - 31), before the last rounding to float32.
    const double unit = std::ldexp(1.0, exponent_of(maximum) + static_cast<int>(std::ceil(std::log2(n))) - 31);
    const double bound = n / 2 * unit;
    for (std::size_t i = 0; i < out.size(); ++i) {
        double sum = 0;
        for (const auto &values : workers) sum += double{values[i]};
        if (std::fabs(sum) > double{Limits::max()}) continue;
        const double rounding = std::fabs(sum) * 0x1p-24 + 0x1p-150;
        CHECK(std::fabs(double{out[i]} - sum) <= bound + rounding);
    }
}

}  // namespace

TEST(exponents_are_the_least_powers_of_two_above) {
    CHECK_EQ(int{exponents_of_value(1.0F).e0}, 1);
    CHECK_EQ(int{exponents_of_value(0.99F).e0}, 0);
    CHECK_EQ(int{exponents_of_value(1024.0F).e0}, 11);
    CHECK_EQ(int{exponents_of_value(0x1p126F).e0}, 127);
    CHECK_EQ(int{exponents_of_value(0x1p126F).e1}, int{kPlain});
}

TEST(zeros_and_denormals_have_the_lowest_exponent) {
    for (const float value : {0.0F, -0.0F, Limits::denorm_min(), Limits::min() / 2}) {
        CHECK_EQ(int{exponents_of_value(value).e0}, -126);
        CHECK_EQ(int{exponents_of_value(value).e1}, int{kPlain});
    }
    CHECK_EQ(int{exponents_of_value(Limits::min()).e0}, -125);
}

TEST(the_second_exponent_tells_huge_from_non_finite) {
    CHECK_EQ(int{exponents_of_value(0x1p127F).e1}, int{kExponent128});
    CHECK_EQ(int{exponents_of_value(Limits::max()).e1}, int{kExponent128});
    CHECK_EQ(int{exponents_of_value(Limits::infinity()).e1}, int{kNonFinite});
    CHECK_EQ(int{exponents_of_value(Limits::quiet_NaN()).e1}, int{kNonFinite});
}

TEST(the_scale_is_a_power_of_two) {
    for (std::uint32_t workers = 1; workers <= 32; ++workers) {
        for (int exponent = -126; exponent <= 127; ++exponent) {
            const Scale scale = scale_for({static_cast<std::int8_t>(exponent), kPlain}, workers);
            int power = 0;
            CHECK_EQ(std::frexp(scale.scale, &power), 0.5);
            CHECK_EQ(scale.scale * scale.inverse, 1.0);
        }
    }
}

// Seen with a scale that filled the range: 299.81.
TEST(small_whole_numbers_beside_large_ones_are_summed_exactly) {
    Exponents maximum{};
    const auto out = reduce({{1e8F, 100.0F}, {1e8F, 100.0F}, {1e8F, 100.0F}}, maximum);
    CHECK_EQ(out[0], 3e8F);
    CHECK_EQ(out[1], 300.0F);
}

TEST(multiples_of_the_unit_are_summed_exactly) {
    std::mt19937 random(8);
    for (const std::size_t count : {1U, 2U, 3U, 5U, 8U, 31U, 32U}) {
        for (const int exponent : {-120, -30, 0, 24, 100}) {
            const int unit = exponent + worker_bits(static_cast<std::uint32_t>(count)) - 31;
            std::vector<std::vector<float>> workers(count, std::vector<float>(64));
            for (auto &values : workers) {
                for (auto &value : values) {
                    // Up to 24 bits at any place between the unit and the exponent.
                    const int place = static_cast<int>(random() % 3) * ((exponent - 24 - unit) / 2);
                    value =
                        static_cast<float>(std::ldexp(double(static_cast<int>(random() >> 8)) - 0x1p23, unit + place));
                }
                values[0] = static_cast<float>(std::ldexp(0x1.8p-1, exponent));  // fixes the exponent of the packet
            }
            Exponents maximum{};
            const auto out = reduce(workers, maximum);
            for (std::size_t i = 0; i < out.size(); ++i) {
                double sum = 0;
                for (const auto &values : workers) sum += double{values[i]};
                CHECK_EQ(out[i], static_cast<float>(sum));
            }
        }
    }
}

TEST(a_non_finite_worker_makes_the_packet_non_finite) {
    CHECK(!scale_for({127, kNonFinite}, 2).finite);
    CHECK(scale_for({127, kExponent128}, 2).finite);
    CHECK(scale_for({-128, kPlain}, 2).finite);
}

TEST(no_number_of_full_addends_exceeds_31_bits) {
    for (std::uint32_t workers = 1; workers <= 32; ++workers) {
        CHECK(scale_for({0, kPlain}, workers).limit * workers <= 2147483647.0);
    }
}

TEST(sums_stay_within_the_promised_bound_at_every_magnitude) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    for (int exponent = -149; exponent <= 128; exponent += 3) {
        for (const std::size_t count : {1U, 2U, 3U, 7U, 32U}) {
            std::vector<std::vector<float>> workers(count, std::vector<float>(64));
            for (auto &values : workers) {
                for (auto &value : values) value = static_cast<float>(std::ldexp(double{uniform(random)}, exponent));
            }
            check_bound(workers);
        }
    }
}

TEST(the_largest_floats_below_a_power_of_two_do_not_wrap) {
    for (const int exponent : {-126, -100, 0, 1, 100, 127, 128}) {
        const float edge = static_cast<float>(std::ldexp(1.0 - 0x1p-24, exponent));
        for (std::size_t count = 1; count <= 32; ++count) {
            check_bound(std::vector<std::vector<float>>(count, {edge, -edge, edge / 2}));
        }
    }
}

TEST(zeros_sum_to_exact_zeros) {
    Exponents maximum{};
    for (const float value : reduce({{0.0F, -0.0F}, {0.0F, -0.0F}}, maximum)) CHECK_EQ(value, 0.0F);
}

TEST(denormals_sum_exactly) {
    Exponents maximum{};
    const float tiny = Limits::denorm_min();
    const auto out = reduce({{tiny, 3 * tiny}, {tiny, -5 * tiny}}, maximum);
    CHECK_EQ(out[0], 2 * tiny);
    CHECK_EQ(out[1], -2 * tiny);
}

TEST(sums_beyond_float32_are_infinite) {
    Exponents maximum{};
    const auto out = reduce({{Limits::max(), -Limits::max()}, {Limits::max(), -Limits::max()}}, maximum);
    CHECK(std::isinf(out[0]) && out[0] > 0);
    CHECK(std::isinf(out[1]) && out[1] < 0);
}

CHECK_MAIN()
