// SPDX-License-Identifier: BSD-3-Clause
#include "host_sum.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace torch_switchml {

namespace {

// A block stays in the nearest cache while one source after another is added.
constexpr uint64_t kBlockNumel = 2048;

// From this size on a tensor goes past the caches.
constexpr uint64_t kLargeNumel = 1 << 20;

// A vector register's worth, of every processor that has any; no source need be aligned.
typedef float Floats __attribute__((vector_size(16)));
typedef uint32_t Integers __attribute__((vector_size(16)));  // unsigned: wraps

template <typename Vector, typename Element>
void add_block(char *out, const char *left, const char *right, uint64_t numel) {
    constexpr uint64_t kLanes = sizeof(Vector) / sizeof(Element);
    uint64_t done = 0;
    for (; done + kLanes <= numel; done += kLanes) {
        Vector a;
        Vector b;
        std::memcpy(&a, left + done * sizeof(Element), sizeof(Vector));
        std::memcpy(&b, right + done * sizeof(Element), sizeof(Vector));
        a += b;
        std::memcpy(out + done * sizeof(Element), &a, sizeof(Vector));
    }
    for (; done < numel; ++done) {
        Element a;
        Element b;
        std::memcpy(&a, left + done * sizeof(Element), sizeof(Element));
        std::memcpy(&b, right + done * sizeof(Element), sizeof(Element));
        a += b;
        std::memcpy(out + done * sizeof(Element), &a, sizeof(Element));
    }
}

#if defined(__SSE2__)
// Stores that do not fetch the line that they replace, nor keep it. Complete when it returns.
void copy_past_caches(char *to, const char *from, uint64_t bytes) {
    constexpr uint64_t kLineBytes = 64;
    const uint64_t before = std::min(bytes, (kLineBytes - reinterpret_cast<uintptr_t>(to) % kLineBytes) % kLineBytes);
    std::memcpy(to, from, before);
    uint64_t done = before;
    for (; done + kLineBytes <= bytes; done += kLineBytes) {
        const auto *const source = reinterpret_cast<const __m128i *>(from + done);
        auto *const line = reinterpret_cast<__m128i *>(to + done);
        const __m128i first = _mm_loadu_si128(source);
        const __m128i second = _mm_loadu_si128(source + 1);
        const __m128i third = _mm_loadu_si128(source + 2);
        const __m128i fourth = _mm_loadu_si128(source + 3);
        _mm_stream_si128(line, first);
        _mm_stream_si128(line + 1, second);
        _mm_stream_si128(line + 2, third);
        _mm_stream_si128(line + 3, fourth);
    }
    _mm_sfence();
    std::memcpy(to + done, from + done, bytes - done);
}
#else
void copy_past_caches(char *to, const char *from, uint64_t bytes) { std::memcpy(to, from, bytes); }
#endif

}  // namespace

void copy_result(char *to, const char *from, uint64_t bytes, uint64_t numel) {
    if (numel >= kLargeNumel) {
        copy_past_caches(to, from, bytes);
    } else {
        std::memcpy(to, from, bytes);
    }
}

void sum_sources(char *out, const std::vector<const char *> &sources, uint64_t numel, Dtype dtype) {
    const auto add = dtype == Dtype::kFloat32 ? &add_block<Floats, float> : &add_block<Integers, uint32_t>;
    if (sources.size() == 1) {
        std::memcpy(out, sources.front(), numel * sizeof(float));
        return;
    }
    for (uint64_t begin = 0; begin < numel; begin += kBlockNumel) {
        const uint64_t block = std::min(kBlockNumel, numel - begin);
        const std::size_t offset = begin * sizeof(float);
        add(out + offset, sources[0] + offset, sources[1] + offset, block);
        for (std::size_t index = 2; index < sources.size(); ++index) {
            add(out + offset, out + offset, sources[index] + offset, block);
        }
    }
}

}  // namespace torch_switchml
