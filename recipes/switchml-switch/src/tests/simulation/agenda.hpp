// SPDX-License-Identifier: BSD-3-Clause
//
// Virtual time: what happens when, and random numbers that follow from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace switchml::simulation {

constexpr std::int64_t kUs = 1000;
constexpr std::int64_t kMs = 1000 * kUs;

// SplitMix64, so that any (seed, number) gives a sequence of its own.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    Random(std::uint64_t seed, std::uint64_t number) : state_(Random(seed ^ Random(number).next()).next()) {}

    std::uint64_t next() {
        state_ += 0x9E3779B97F4A7C15U;
        std::uint64_t mixed = (state_ ^ (state_ >> 30)) * 0xBF58476D1CE4E5B9U;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
        return mixed ^ (mixed >> 31);
    }

    // 0 to bound - 1.
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }
    // From first to last, both included.
    std::int64_t between(std::int64_t first, std::int64_t last) {
        return first + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(last - first) + 1));
    }
    double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    bool chance(double probability) { return fraction() < probability; }

  private:
    std::uint64_t state_;
};

class Agenda {
  public:
    std::int64_t now_ns() const noexcept { return now_ns_; }

    // In the order of time, and of these calls where times are equal.
    void after(std::int64_t delay_ns, std::function<void()> event) {
        events_.push_back({now_ns_ + delay_ns, count_++, std::move(event)});
        std::push_heap(events_.begin(), events_.end(), later);
    }

    // Runs the next event; false when there is none.
    bool step() {
        if (events_.empty()) return false;
        std::pop_heap(events_.begin(), events_.end(), later);
        const Event event = std::move(events_.back());
        events_.pop_back();
        now_ns_ = event.at_ns;
        event.run();
        return true;
    }

  private:
    struct Event {
        std::int64_t at_ns;
        std::uint64_t order;
        std::function<void()> run;
    };

    static bool later(const Event &a, const Event &b) {
        return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.order > b.order;
    }

    std::vector<Event> events_;
    std::uint64_t count_ = 0;
    std::int64_t now_ns_ = 0;
};

}  // namespace switchml::simulation
