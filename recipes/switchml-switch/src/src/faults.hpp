// SPDX-License-Identifier: BSD-3-Clause
//
// One direction of a faulty network, for tests: packets are lost, come twice, late
// or out of order, as rates and a seed say. The caller says what time it is, so
// the same seed and the same packets meet the same faults.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include "counters.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::softswitch {

// Probabilities, each at least 0 and below 1.
struct FaultRates {
    double drop = 0;
    double duplicate = 0;
    double delay = 0;
    double reorder = 0;
    std::chrono::milliseconds longest_delay{10};  // a delay is up to this long
};

class FaultyLink {
  public:
    using Clock = std::chrono::steady_clock;

    enum class Fate { kDelivered, kDropped, kHeld };

    struct Packet {
        wire::Endpoint endpoint;
        std::vector<std::uint8_t> bytes;
    };

    FaultyLink(const FaultRates &rates, std::uint64_t seed) : rates_(rates), random_(seed) {}

    bool active() const noexcept {
        return rates_.drop > 0 || rates_.duplicate > 0 || rates_.delay > 0 || rates_.reorder > 0;
    }

    // What becomes of a packet: the caller delivers it now, never, or when due() hands it over. A second copy of a
    // duplicated packet comes from due() in each case but kDropped. At most 65536 packets are kept; what finds no
    // place is delivered at once and meets no fault.
    Fate admit(const wire::Endpoint &endpoint, const std::uint8_t *data, std::size_t bytes, Clock::time_point now);

    // Packets whose time has come or that have been overtaken, in the order of their admission.
    std::vector<Packet> due(Clock::time_point now);

    // When due() has something even if no packet is admitted; nothing while none is kept.
    std::optional<Clock::time_point> next_due() const;

    void clear() { held_.clear(); }

    const FaultCounters &counters() const noexcept { return counters_; }

  private:
    struct Held {
        Packet packet;
        Clock::time_point due;
        std::optional<std::uint64_t> overtaken_at;  // due as well when this many packets have been admitted
    };

    bool chance(double rate) { return rate > 0 && uniform_(random_) < rate; }

    FaultRates rates_;
    std::mt19937_64 random_;
    std::uniform_real_distribution<double> uniform_{0.0, 1.0};
    std::uint64_t admitted_ = 0;
    std::deque<Held> held_;
    FaultCounters counters_;
};

}  // namespace switchml::softswitch
