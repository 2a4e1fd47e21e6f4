// SPDX-License-Identifier: BSD-3-Clause
#include "udp/exact.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "wire/values.hpp"

namespace switchml::udp {
namespace {

constexpr int kLeastExponent = -149;  // of the lowest digit's lowest bit, and of the least denormal
constexpr int kFractionBits = 23;
constexpr std::int64_t kBase = std::int64_t{1} << kDigitBits;

using Digits = std::array<std::int32_t, kDigits>;
using Sums = std::array<std::int64_t, kDigits>;

Digits digits_of(std::uint32_t bits) {
    const std::uint32_t field = bits >> kFractionBits & 0xFFU;
    const std::uint64_t fraction = bits & ((1U << kFractionBits) - 1);
    const std::uint64_t magnitude = field == 0 ? fraction : fraction | 1U << kFractionBits;
    const std::uint32_t shift = field == 0 ? 0 : field - 1;  // of the magnitude's lowest bit
    const std::uint64_t shifted = magnitude << shift % kDigitBits;
    const std::int32_t sign = bits >> 31 != 0 ? -1 : 1;
    Digits digits{};
    digits.at(shift / kDigitBits) = sign * static_cast<std::int32_t>(shifted % kBase);
    digits.at(shift / kDigitBits + 1) = sign * static_cast<std::int32_t>(shifted / kBase);
    return digits;
}

// Leaves digits from 0 to kBase - 1, and to the highest one the number's sign.
void carry(Sums &sums) {
    for (std::uint32_t i = 0; i + 1 < kDigits; ++i) {
        const std::int64_t digit = sums[i] & (kBase - 1);
        sums[i + 1] += (sums[i] - digit) / kBase;
        sums[i] = digit;
    }
}

float rounded(Sums digits) {
    carry(digits);
    const bool negative = digits.back() < 0;
    if (negative) {
        for (std::int64_t &digit : digits) digit = -digit;
        carry(digits);
    }
    std::uint32_t top = kDigits - 1;
    while (top > 1 && digits[top] == 0) --top;
    bool rest = false;  // whether anything is below the two highest digits, which have 27 bits or more
    for (std::uint32_t i = 0; i + 1 < top; ++i) rest = rest || digits[i] != 0;
    const std::int64_t highest = digits[top] * kBase + digits[top - 1];
    // The lowest bit stands for the rest, so that only this conversion rounds.
    const auto nearest = static_cast<float>(2 * highest + (rest ? 1 : 0));
    const float magnitude = std::ldexp(nearest, kLeastExponent + static_cast<int>(top - 1) * kDigitBits - 1);
    return negative ? -magnitude : magnitude;
}

}  // namespace

bool write_exact(const float *elements, std::size_t numel, std::uint8_t *values) {
    bool finite = true;
    for (std::size_t i = 0; i < numel; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, elements + i, sizeof bits);
        const bool plain = (bits >> kFractionBits & 0xFFU) != 0xFFU;
        finite = finite && plain;
        const Digits digits = plain ? digits_of(bits) : Digits{};
        wire::value_kernels().store(values + 4 * kDigits * i, digits.data(), kDigits);
    }
    return finite;
}

void read_exact(const std::uint8_t *sums, std::size_t numel, float *elements) {
    for (std::size_t i = 0; i < numel; ++i) {
        Digits digits{};
        wire::value_kernels().load(digits.data(), sums + 4 * kDigits * i, kDigits);
        Sums wide{};
        std::copy(digits.begin(), digits.end(), wide.begin());
        elements[i] = rounded(wide);
    }
}

}  // namespace switchml::udp
