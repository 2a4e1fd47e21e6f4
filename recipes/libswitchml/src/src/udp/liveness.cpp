// SPDX-License-Identifier: BSD-3-Clause
#include "udp/liveness.hpp"

#include <utility>

namespace switchml::udp {

void Liveness::answered(std::string missing, const std::string &gone, std::int64_t now_ns) {
    const std::lock_guard lock(mutex_);
    missing_ = std::move(missing);
    set_gone(gone.empty() ? std::nullopt : std::optional<Error>(std::in_place, SWITCHML_ETIMEDOUT, gone), now_ns);
}

void Liveness::unanswered(std::string reason, std::int64_t now_ns) {
    const std::lock_guard lock(mutex_);
    set_gone(std::optional<Error>(std::in_place, SWITCHML_EUNREACHABLE, std::move(reason)), now_ns);
}

std::optional<Error> Liveness::gone() const {
    const std::lock_guard lock(mutex_);
    return gone_;
}

std::string Liveness::missing() const {
    const std::lock_guard lock(mutex_);
    return missing_;
}

void Liveness::set_gone(std::optional<Error> gone, std::int64_t now_ns) {
    gone_ = std::move(gone);
    if (!gone_)
        gone_since_ns_.store(kNever, std::memory_order_relaxed);
    else if (gone_since_ns() == kNever)
        gone_since_ns_.store(now_ns, std::memory_order_relaxed);
}

}  // namespace switchml::udp
