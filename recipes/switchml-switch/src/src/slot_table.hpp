// SPDX-License-Identifier: BSD-3-Clause
//
// The aggregation state of a switch: per slot two sets, per set who has been
// seen, how many are missing, the sums and the exponents. Pure: no packets, no
// addresses.
//
// Published clients number packets per job, so nothing tells a packet that comes
// late from one that is due: the published rules take it for the next use of its
// slot. In a numbered session each packet says which use of its slot it is for,
// and every other is stale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "wire/packet.hpp"

namespace switchml::softswitch {

enum class Verdict {
    kAccumulated,  // taken, others are missing
    kCompleted,    // taken, the last one: the result goes to all workers
    kRepeated,     // seen before and complete: the stored result goes to this worker
    kDuplicate,    // seen before and incomplete: nothing to do
    kStale,        // of no use of the slot that is open or due: numbered sessions only
};

// How a session's packets are numbered: thread t's ring of `window` slots is 2 * window * t and on, its packet k has
// the number first + k, slot k mod window of the ring, and set 1 in each second round.
struct Numbering {
    std::uint32_t first;
    std::uint32_t window;  // per thread
    std::uint32_t threads;
};

struct Contribution {
    std::uint32_t rank;
    std::uint16_t slot;
    bool set;
    std::int8_t e0;
    std::int8_t e1;
    const std::uint8_t *values;  // in wire order
    std::uint32_t number = 0;    // of the packet, where the session is numbered
};

class SlotTable {
  public:
    SlotTable();

    // Forgets everything. num_workers is 1 to 32, numel the values per packet; no numbering: the published rules.
    void reset(std::uint32_t num_workers, std::uint32_t numel, const std::optional<Numbering> &numbering = {});

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
        std::uint32_t number = 0;
    };

    // Where a numbered slot stands: the packet that opens its next use.
    struct Due {
        std::uint32_t number;
        bool set;
        bool used;  // false for slots that the session's threads do not have
    };

    void number_slots(const Numbering &numbering);
    Verdict update_published(const Contribution &contribution);
    Verdict update_numbered(const Contribution &contribution);
    Verdict open(std::size_t index, const Contribution &contribution);
    Verdict add(std::size_t index, const Contribution &contribution);

    // Packets come slot by slot in one set, so that their values lie one behind the other.
    static std::size_t index_of(std::uint16_t slot, bool set) {
        return slot + (set ? std::size_t{wire::kNumSlots} : 0);
    }
    std::int32_t *values_of(std::size_t index) const { return values_.get() + index * wire::kMaxPacketNumel; }

    std::uint32_t num_workers_ = 0;
    std::uint32_t numel_ = 0;
    std::uint32_t window_ = 0;  // 0: not numbered
    std::vector<State> states_;
    std::vector<Due> due_;
    // 16 MiB, left uninitialised: the first contribution overwrites, so only used slots take memory.
    std::unique_ptr<std::int32_t[]> values_;
};

}  // namespace switchml::softswitch
