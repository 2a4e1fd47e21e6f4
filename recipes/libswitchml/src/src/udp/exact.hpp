// SPDX-License-Identifier: BSD-3-Clause
//
// Sums of float32 without rounding, for the few elements that fit a packet this
// way. An element is a fixed-point number over all of float32's range, in digits
// of 26 bits: the switch adds digit by digit, and the only rounding is that of
// the sum to float32. It needs no exponent, and so no round trip to agree on one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/packet.hpp"

namespace switchml::udp {

constexpr int kDigitBits = 26;  // the digits of wire::kMaxWorkers workers add up to less than 2^31
// From float32's least bit, 2^-149, to its greatest, 2^127, and what the workers' sum carries beyond.
constexpr std::uint32_t kDigits = 11;
static_assert(wire::kMaxWorkers <= 1U << (31 - kDigitBits));
static_assert(kDigits * kDigitBits > 149 + 128 + 5);

// The elements that this many values of a packet hold.
constexpr std::uint32_t exact_capacity(std::uint32_t values) { return values / kDigits; }

// Writes numel * kDigits values of a packet, in wire order. False where Inf or NaN is among the elements: they count as
// 0.
bool write_exact(const float *elements, std::size_t numel, std::uint8_t *values);

// From sums of what up to wire::kMaxWorkers workers wrote, in wire order: rounded to nearest even, Inf beyond float32's
// range.
void read_exact(const std::uint8_t *sums, std::size_t numel, float *elements);

}  // namespace switchml::udp
