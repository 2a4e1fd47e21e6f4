// SPDX-License-Identifier: BSD-3-Clause
//
// The clock that progress, retransmissions and absence are measured by.
#pragma once

#include <cstdint>
#include <ctime>

namespace switchml::udp {

constexpr std::int64_t kNsPerUs = 1000;
constexpr std::int64_t kNsPerMs = 1000 * 1000;
constexpr std::int64_t kNsPerS = 1000 * kNsPerMs;

inline std::int64_t monotonic_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * kNsPerS + now.tv_nsec;
}

}  // namespace switchml::udp
