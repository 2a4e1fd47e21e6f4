// SPDX-License-Identifier: BSD-3-Clause
//
// What the lease's thread learns about the other workers and the switch, for the
// threads that wait for results.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string>

#include "error.hpp"

namespace switchml::udp {

class Liveness {
  public:
    static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

    // The switch answered. `missing`: workers that it has not heard of for long; `gone`: those of them that do not
    // come back, having ended their session or been silent for a whole lease. Both as text, empty for none.
    void answered(std::string missing, const std::string &gone, std::int64_t now_ns);
    // The switch has not answered for a whole lease.
    void unanswered(std::string reason, std::int64_t now_ns);

    // From when on somebody has been gone without a break; kNever while nobody is.
    std::int64_t gone_since_ns() const noexcept { return gone_since_ns_.load(std::memory_order_relaxed); }
    // Who is gone; nothing while nobody is.
    std::optional<Error> gone() const;
    std::string missing() const;

  private:
    void set_gone(std::optional<Error> gone, std::int64_t now_ns);

    std::atomic<std::int64_t> gone_since_ns_{kNever};
    mutable std::mutex mutex_;  // guards the two below
    std::optional<Error> gone_;
    std::string missing_;
};

}  // namespace switchml::udp
