// SPDX-License-Identifier: BSD-3-Clause
//
// Which slot and set a unit of a slice uses. All workers must come to the same
// answer, and each slot must alternate its set over the whole session, so the
// ring goes on where the slice before left it.
#pragma once

#include <cstdint>

namespace switchml::udp {

struct Place {
    std::uint16_t slot;
    bool set;
};

class SlotRing {
  public:
    // `window`: outstanding packets of one thread, at least 1. `first_number`: of the session's first packet.
    SlotRing(std::uint32_t thread, std::uint32_t window, std::uint32_t first_number = 0)
        : window_(window), first_slot_(2 * window * thread), base_(first_number) {}

    Place place(std::uint32_t unit) const {
        const auto position = static_cast<std::uint32_t>((std::uint64_t{unit} + shift_) % (2 * window_));
        return {static_cast<std::uint16_t>(first_slot_ + position % window_), position >= window_};
    }

    // Packets are numbered through the whole session, modulo 2^32, so that one of an earlier use of a slot is told
    // from the one that is due, whatever job it was of.
    std::uint32_t number(std::uint32_t unit) const { return base_ + unit; }
    std::uint32_t unit(std::uint32_t number) const { return number - base_; }

    // After a slice of so many units.
    void advance(std::uint32_t units) {
        base_ += units;
        shift_ = static_cast<std::uint32_t>((std::uint64_t{units} + shift_) % (2 * window_));
    }

    std::uint32_t window() const noexcept { return window_; }

  private:
    std::uint32_t window_;
    std::uint32_t first_slot_;
    std::uint32_t base_;  // number of the slice's first packet
    std::uint32_t shift_ = 0;
};

// Thread `thread`'s contiguous part of a job: the first numel % threads parts have one element more.
struct Part {
    std::uint64_t first;
    std::uint64_t numel;
};

constexpr Part part_of(std::uint64_t numel, std::uint32_t threads, std::uint32_t thread) {
    const std::uint64_t share = numel / threads;
    const std::uint64_t longer = numel % threads;
    const std::uint64_t before = share * thread + (thread < longer ? thread : longer);
    return {before, share + (thread < longer ? 1 : 0)};
}

}  // namespace switchml::udp
