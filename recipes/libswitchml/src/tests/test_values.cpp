// SPDX-License-Identifier: BSD-3-Clause
//
// Both sets of loops against plain arithmetic, at every alignment and length
// around the vector sizes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "wire/check.hpp"
#include "wire/values.hpp"

using namespace switchml::wire;

namespace {

constexpr std::size_t kLengths[] = {0, 1, 2, 3, 7, 8, 9, 15, 31, 63, 64, 65, 255, 256};

std::int32_t from_wire(const std::uint8_t *bytes) {
    return static_cast<std::int32_t>(std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
                                     std::uint32_t{bytes[2]} << 8 | bytes[3]);
}

template <class Body>
void for_both(Body &&body) {
    for (const ValueKernels *kernels : {&baseline_value_kernels(), &value_kernels()}) {
        for (const std::size_t n : kLengths) {
            for (std::size_t shift = 0; shift < 4; ++shift) body(*kernels, n, shift);
        }
    }
}

std::vector<std::int32_t> random_ints(std::size_t n) {
    std::mt19937 random(7);
    std::vector<std::int32_t> values(n);
    for (auto &value : values) value = static_cast<std::int32_t>(random());
    return values;
}

}  // namespace

TEST(integers_travel_big_endian_and_come_back) {
    for_both([](const ValueKernels &kernels, std::size_t n, std::size_t shift) {
        const auto values = random_ints(n);
        std::vector<std::uint8_t> wire(4 * n + shift + 1, 0x5A);
        kernels.store(wire.data() + shift, values.data(), n);
        for (std::size_t i = 0; i < n; ++i) CHECK_EQ(from_wire(wire.data() + shift + 4 * i), values[i]);
        CHECK_EQ(int{wire.back()}, 0x5A);
        std::vector<std::int32_t> back(n);
        kernels.load(back.data(), wire.data() + shift, n);
        CHECK(back == values);
    });
}

TEST(sums_wrap_modulo_2_to_the_32) {
    for_both([](const ValueKernels &kernels, std::size_t n, std::size_t shift) {
        const auto values = random_ints(n);
        std::vector<std::uint8_t> wire(4 * n + shift);
        kernels.store(wire.data() + shift, values.data(), n);
        auto sums = values;
        kernels.add(sums.data(), wire.data() + shift, n);
        for (std::size_t i = 0; i < n; ++i) {
            CHECK_EQ(static_cast<std::uint32_t>(sums[i]), 2 * static_cast<std::uint32_t>(values[i]));
        }
    });
}

TEST(the_largest_magnitude_is_found_wherever_it_is) {
    for (const ValueKernels *kernels : {&baseline_value_kernels(), &value_kernels()}) {
        for (const float largest : {3.5F, -3.5F}) {
            for (std::size_t at = 0; at < 65; ++at) {
                std::vector<float> values(65, -1.25F);
                values[at] = largest;
                const std::uint32_t bits = kernels->max_magnitude(values.data(), values.size());
                float found;
                std::memcpy(&found, &bits, 4);
                CHECK_EQ(found, 3.5F);
            }
        }
        CHECK_EQ(kernels->max_magnitude(nullptr, 0), 0U);
    }
}

TEST(inf_and_nan_of_either_sign_show_in_the_magnitude) {
    const float inf = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const ValueKernels *kernels : {&baseline_value_kernels(), &value_kernels()}) {
        for (const float bad : {inf, -inf, nan, std::copysign(nan, -1.0F)}) {
            std::vector<float> values(65, std::numeric_limits<float>::max());
            values[40] = bad;
            CHECK(kernels->max_magnitude(values.data(), values.size()) >= 0x7F800000U);
        }
    }
}

TEST(quantisation_rounds_to_nearest_even_and_keeps_the_limit) {
    const std::vector<float> in{0.0F,  -0.0F,       0.5F, 1.5F,  2.5F,   -0.5F, -1.5F,
                                -2.5F, 0.49999997F, 7.0F, 1e30F, -1e30F, 3.0F};
    const std::vector<std::int32_t> expected{0, 0, 0, 2, 2, 0, -2, -2, 0, 7, 1000, -1000, 3};
    for (const ValueKernels *kernels : {&baseline_value_kernels(), &value_kernels()}) {
        std::vector<std::uint8_t> wire(4 * in.size());
        kernels->quantize(wire.data(), in.data(), in.size(), 1.0, 1000.0);
        for (std::size_t i = 0; i < in.size(); ++i) CHECK_EQ(from_wire(wire.data() + 4 * i), expected[i]);
    }
}

TEST(quantisation_reaches_the_ends_of_32_bits) {
    const float largest = std::nextafter(1.0F, 0.0F);
    const std::vector<float> in{largest, -largest};
    for (const ValueKernels *kernels : {&baseline_value_kernels(), &value_kernels()}) {
        std::uint8_t wire[8];
        kernels->quantize(wire, in.data(), 2, std::ldexp(1.0, 31), 2147483647.0);
        CHECK_EQ(from_wire(wire), 2147483520);
        CHECK_EQ(from_wire(wire + 4), -2147483520);
    }
}

TEST(what_is_beyond_the_limit_stays_within_it) {
    const std::vector<float> in{1e30F, -1e30F, std::numeric_limits<float>::infinity(), 2.0F};
    for (const ValueKernels *kernels : {&baseline_value_kernels(), &value_kernels()}) {
        for (const double workers : {1.0, 2.0, 3.0, 32.0}) {
            const double limit = std::floor(2147483647.0 / workers);
            std::vector<std::uint8_t> wire(4 * in.size());
            kernels->quantize(wire.data(), in.data(), in.size(), std::ldexp(1.0, 31), limit);
            for (std::size_t i = 0; i < in.size(); ++i) {
                const double value = from_wire(wire.data() + 4 * i);
                CHECK(std::abs(value) <= limit && std::abs(value) > 0.999999 * limit);
            }
        }
    }
}

// With every scale that there is: that of 32 workers and the largest floats to that of one and the smallest.
TEST(both_sets_quantise_and_restore_to_the_same_bits) {
    std::mt19937 random(11);
    const ValueKernels *sets[] = {&baseline_value_kernels(), &value_kernels()};
    for (int shift = 31 - 5 - 128; shift <= 31 + 126; ++shift) {
        std::vector<float> in(257);
        for (auto &value : in) {
            const auto bits = static_cast<std::int32_t>(random());
            value =
                static_cast<float>(std::ldexp(bits >> 8, std::min(7 - shift, 104) - static_cast<int>(random() % 40)));
        }
        std::vector<std::uint8_t> wire[2];
        std::vector<float> out[2];
        for (int i = 0; i < 2; ++i) {
            wire[i].resize(4 * in.size());
            out[i].resize(in.size());
            sets[i]->quantize(wire[i].data(), in.data(), in.size(), std::ldexp(1.0, shift), 2147483647.0);
            sets[i]->dequantize(out[i].data(), wire[i].data(), in.size(), std::ldexp(1.0, -shift));
        }
        CHECK(wire[0] == wire[1]);
        CHECK(std::memcmp(out[0].data(), out[1].data(), 4 * in.size()) == 0);
    }
}

TEST(restoring_beyond_float32_gives_infinity) {
    const std::uint8_t wire[8] = {0x7F, 0xFF, 0xFF, 0xFF, 0x80, 0, 0, 1};
    for (const ValueKernels *kernels : {&baseline_value_kernels(), &value_kernels()}) {
        float out[2];
        kernels->dequantize(out, wire, 2, std::ldexp(1.0, 98));
        CHECK(std::isinf(out[0]) && out[0] > 0);
        CHECK(std::isinf(out[1]) && out[1] < 0);
    }
}

CHECK_MAIN()
