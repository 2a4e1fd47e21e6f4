// SPDX-License-Identifier: BSD-3-Clause
//
// The aggregation state of a switch: per slot two sets, per set who has been
// seen, how many are missing, the sums and the exponents. Pure: no packets, no
// addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "wire/packet.hpp"

namespace switchml::softswitch {

enum class Verdict {
    kAccumulated,  // taken, others are missing
    kCompleted,    // taken, the last one: the result goes to all workers
    kRepeated,     // seen before and complete: the stored result goes to this worker
    kDuplicate,    // seen before and incomplete: nothing to do
};

struct Contribution {
    std::uint32_t rank;
    std::uint16_t slot;
    bool set;
    std::int8_t e0;
    std::int8_t e1;
    const std::uint8_t *values;  // in wire order
};

class SlotTable {
  public:
    SlotTable();

    // Forgets everything. num_workers is 1 to 32, numel the values per packet.
    void reset(std::uint32_t num_workers, std::uint32_t numel);

    // rank is below num_workers, slot below kNumSlots.
    Verdict update(const Contribution &contribution);

    // The aggregate of a set, after kCompleted or kRepeated: exponents, and values written in wire order.
    void read(std::uint16_t slot, bool set, wire::Header &header, std::uint8_t *values) const;

  private:
    struct State {
        std::uint32_t seen = 0;
        std::uint8_t left = 0;
        std::int8_t e0 = 0;
        std::int8_t e1 = 0;
    };

    static std::size_t index_of(std::uint16_t slot, bool set) { return 2 * std::size_t{slot} + (set ? 1 : 0); }
    std::int32_t *values_of(std::size_t index) const { return values_.get() + index * wire::kMaxPacketNumel; }

    std::uint32_t num_workers_ = 0;
    std::uint32_t numel_ = 0;
    std::vector<State> states_;
    // 16 MiB, left uninitialised: the first contribution overwrites, so only used slots take memory.
    std::unique_ptr<std::int32_t[]> values_;
};

}  // namespace switchml::softswitch
