// SPDX-License-Identifier: BSD-3-Clause
//
// The inner loops over a packet's values: byte order, sums, quantisation. Each
// exists once and is compiled for the baseline and for AVX2; the processor
// decides at run time, so one binary serves all x86-64 machines.
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchml::wire {

struct ValueKernels {
    // dst = src, host to wire order; dst needs no alignment.
    void (*store)(std::uint8_t *dst, const std::int32_t *src, std::size_t n);
    // dst = src, wire to host order.
    void (*load)(std::int32_t *dst, const std::uint8_t *src, std::size_t n);
    // dst += src modulo 2^32, src in wire order.
    void (*add)(std::int32_t *dst, const std::uint8_t *src, std::size_t n);
    // Bits of the largest magnitude, sign cleared: 0x7F800000 and above mean that Inf or NaN is among them.
    std::uint32_t (*max_magnitude)(const float *src, std::size_t n);
    // dst = src * scale rounded to nearest even, held within +-limit, in wire order. `scale`: a power of two.
    void (*quantize)(std::uint8_t *dst, const float *src, std::size_t n, double scale, double limit);
    // dst = src * inverse_scale, rounded once, src in wire order. `inverse_scale`: a power of two.
    void (*dequantize)(float *dst, const std::uint8_t *src, std::size_t n, double inverse_scale);
};

// The fastest set that this processor runs; the same one on every call.
const ValueKernels &value_kernels() noexcept;

// The set that every processor runs, for comparison in tests.
const ValueKernels &baseline_value_kernels() noexcept;

}  // namespace switchml::wire
