// SPDX-License-Identifier: BSD-3-Clause
#include "values.hpp"

#include <cstring>

namespace switchml::wire {
namespace {

#define SWITCHML_INLINE static inline __attribute__((always_inline))

SWITCHML_INLINE std::uint32_t wire_order(std::uint32_t value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return __builtin_bswap32(value);
#else
    return value;
#endif
}

SWITCHML_INLINE std::uint32_t load_word(const void *from) {
    std::uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

SWITCHML_INLINE void store_word(void *to, std::uint32_t word) { std::memcpy(to, &word, sizeof word); }

SWITCHML_INLINE void store_impl(std::uint8_t *dst, const std::int32_t *src, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) store_word(dst + 4 * i, wire_order(static_cast<std::uint32_t>(src[i])));
}

SWITCHML_INLINE void load_impl(std::int32_t *dst, const std::uint8_t *src, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) dst[i] = static_cast<std::int32_t>(wire_order(load_word(src + 4 * i)));
}

SWITCHML_INLINE void add_impl(std::int32_t *dst, const std::uint8_t *src, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        // Unsigned, because a signed sum that wraps is undefined in C++.
        dst[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(dst[i]) + wire_order(load_word(src + 4 * i)));
    }
}

SWITCHML_INLINE std::uint32_t max_magnitude_impl(const float *src, std::size_t n) {
    // Magnitudes of IEEE floats order like their bits; signed, because SSE4 and AVX2 both compare it in one step.
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const auto bits = static_cast<std::int32_t>(load_word(src + i) & 0x7FFFFFFFU);
        largest = bits > largest ? bits : largest;
    }
    return static_cast<std::uint32_t>(largest);
}

// Whether multiplying floats by a power of two in float does what it does in double: then nothing is rounded twice.
SWITCHML_INLINE bool is_normal_float(double power) { return power >= 0x1p-126 && power <= 0x1p127; }

SWITCHML_INLINE float float_at_most(double limit) {
    const auto nearest = static_cast<float>(limit);
    return nearest <= limit ? nearest : nearest * (1 - 0x1p-24F);
}

SWITCHML_INLINE void quantize_as_float(std::uint8_t *dst, const float *src, std::size_t n, float scale, float limit) {
    for (std::size_t i = 0; i < n; ++i) {
        float value = src[i] * scale;
        value = value < limit ? value : limit;
        value = value > -limit ? value : -limit;
        const auto rounded = static_cast<std::int32_t>(__builtin_rintf(value));
        store_word(dst + 4 * i, wire_order(static_cast<std::uint32_t>(rounded)));
    }
}

SWITCHML_INLINE void dequantize_as_float(float *dst, const std::uint8_t *src, std::size_t n, float inverse_scale) {
    for (std::size_t i = 0; i < n; ++i) {
        const auto value = static_cast<std::int32_t>(wire_order(load_word(src + 4 * i)));
        dst[i] = static_cast<float>(value) * inverse_scale;
    }
}

SWITCHML_INLINE void quantize_impl(std::uint8_t *dst, const float *src, std::size_t n, double scale, double limit) {
    // Adding 1.5 * 2^52 leaves the value, rounded to nearest even, in the low 32 bits of the sum.
    constexpr double kRounder = 6755399441055744.0;
    for (std::size_t i = 0; i < n; ++i) {
        double value = static_cast<double>(src[i]) * scale;
        value = value < limit ? value : limit;
        value = value > -limit ? value : -limit;
        value += kRounder;
        std::uint64_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        store_word(dst + 4 * i, wire_order(static_cast<std::uint32_t>(bits)));
    }
}

SWITCHML_INLINE void dequantize_impl(float *dst, const std::uint8_t *src, std::size_t n, double inverse_scale) {
    for (std::size_t i = 0; i < n; ++i) {
        const auto value = static_cast<std::int32_t>(wire_order(load_word(src + 4 * i)));
        dst[i] = static_cast<float>(value * inverse_scale);
    }
}

// One set of entry points per target; inlining carries the target into the loops. IN_FLOAT: the target rounds vectors
// of floats, which x86-64 does from SSE4.1 on.
#define SWITCHML_KERNEL_SET(SUFFIX, TARGET, IN_FLOAT)                                                           \
    TARGET void store_##SUFFIX(std::uint8_t *d, const std::int32_t *s, std::size_t n) { store_impl(d, s, n); }  \
    TARGET void load_##SUFFIX(std::int32_t *d, const std::uint8_t *s, std::size_t n) { load_impl(d, s, n); }    \
    TARGET void add_##SUFFIX(std::int32_t *d, const std::uint8_t *s, std::size_t n) { add_impl(d, s, n); }      \
    TARGET std::uint32_t max_##SUFFIX(const float *s, std::size_t n) { return max_magnitude_impl(s, n); }       \
    TARGET void quantize_##SUFFIX(std::uint8_t *d, const float *s, std::size_t n, double scale, double limit) { \
        if (IN_FLOAT && is_normal_float(scale)) {                                                               \
            quantize_as_float(d, s, n, static_cast<float>(scale), float_at_most(limit));                        \
        } else {                                                                                                \
            quantize_impl(d, s, n, scale, limit);                                                               \
        }                                                                                                       \
    }                                                                                                           \
    TARGET void dequantize_##SUFFIX(float *d, const std::uint8_t *s, std::size_t n, double inverse) {           \
        if (IN_FLOAT && is_normal_float(inverse)) {                                                             \
            dequantize_as_float(d, s, n, static_cast<float>(inverse));                                          \
        } else {                                                                                                \
            dequantize_impl(d, s, n, inverse);                                                                  \
        }                                                                                                       \
    }                                                                                                           \
    constexpr ValueKernels kernels_##SUFFIX{store_##SUFFIX, load_##SUFFIX,     add_##SUFFIX,                    \
                                            max_##SUFFIX,   quantize_##SUFFIX, dequantize_##SUFFIX};

#if defined(__x86_64__)
SWITCHML_KERNEL_SET(baseline, , false)
SWITCHML_KERNEL_SET(avx2, __attribute__((target("avx2"))), true)
#else
SWITCHML_KERNEL_SET(baseline, , true)
#endif

const ValueKernels &choose() noexcept {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return kernels_avx2;
#endif
    return kernels_baseline;
}

}  // namespace

const ValueKernels &value_kernels() noexcept {
    static const ValueKernels &chosen = choose();
    return chosen;
}

const ValueKernels &baseline_value_kernels() noexcept { return kernels_baseline; }

}  // namespace switchml::wire
