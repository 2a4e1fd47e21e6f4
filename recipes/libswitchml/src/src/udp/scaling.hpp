// SPDX-License-Identifier: BSD-3-Clause
//
// float32 as shared-exponent fixed point: what goes into the two exponent bytes
// of a packet and which scale follows from the maximum over all workers.
//
// e0 is the published exponent. e1, which published clients leave 0 and the
// switch maximises as well, says what e0 cannot: magnitudes from 2^127 on, whose
// exponent 128 does not fit a signed byte, and Inf or NaN.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace switchml::udp {

constexpr std::int8_t kPlain = 0;
constexpr std::int8_t kExponent128 = 1;
constexpr std::int8_t kNonFinite = 2;
constexpr std::int8_t kLowestExponent = -128;  // what a packet without an exponent carries: it never is the maximum

struct Exponents {
    std::int8_t e0;
    std::int8_t e1;
};

// From the bits of the largest magnitude. The least exponent is -126, which
// zeros and denormals share; all of them are below 2^-126.
constexpr Exponents exponents_of(std::uint32_t magnitude_bits) {
    const int field = static_cast<int>(magnitude_bits >> 23);
    if (field == 255) return {127, kNonFinite};
    if (field == 254) return {127, kExponent128};
    return {static_cast<std::int8_t>(field - 126), kPlain};
}

struct Scale {
    bool finite = true;  // false: some worker has Inf or NaN, the whole packet becomes NaN
    double scale = 0;
    double inverse = 0;
    double limit = 0;  // no addend exceeds this, so that no sum wraps, not even of a buffer that changes meanwhile
};

// The least power of two that holds so many workers, as an exponent.
constexpr int worker_bits(std::uint32_t num_workers) {
    int bits = 0;
    while ((1U << bits) < num_workers) ++bits;
    return bits;
}

// 2^exponent for -1022 to 1023; std::ldexp takes so long that it shows.
inline double power_of_two(int exponent) {
    const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
    double result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

// A power of two, so that scaling itself rounds nothing: what fits in the 31 bits is summed exactly. With magnitudes
// below 2^e and floats of 24 bits, n addends of at most 2^31 / 2^worker_bits(n) do not wrap.
inline Scale scale_for(const Exponents &maximum, std::uint32_t num_workers) {
    constexpr double kLargest = 2147483647.0;
    Scale result;
    if (maximum.e1 >= kNonFinite) {
        result.finite = false;
        return result;
    }
    const int exponent = maximum.e1 == kExponent128 ? 128 : maximum.e0;
    const int shift = 31 - worker_bits(num_workers) - exponent;
    result.scale = power_of_two(shift);
    result.inverse = power_of_two(-shift);
    result.limit = std::floor(kLargest / num_workers);
    return result;
}

}  // namespace switchml::udp
