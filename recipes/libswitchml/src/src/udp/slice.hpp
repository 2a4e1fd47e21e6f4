// SPDX-License-Identifier: BSD-3-Clause
//
// One thread's share of one job: the units to send, the results to take.
//
// Units of a slice are independent chains ("lanes"): unit u waits for the result
// of unit u - B, where B is the window, so each of the B lanes has at most one
// unit in flight and a lost packet holds up its own lane only.
//
// Beyond the published rule, a unit also waits for the result of unit u - W (the
// previous user of its slot), which matters where B < W: sending on a slot's other
// set tells the switch that the previous result has arrived, and a retransmission
// after that would be summed into the wrong round. The first W units wait for the
// last W of the slice ahead, where that is still under way.
//
// Unit 0 describes the job (see description.hpp). Data unit d is unit d + B of
// float32, whose first B units carry exponents only, and unit d + 1 of int32. Few
// enough elements of float32 are in unit 0, too, and all of the slice.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "switchml.h"
#include "udp/description.hpp"
#include "udp/scaling.hpp"
#include "udp/slots.hpp"
#include "wire/packet.hpp"

namespace switchml::udp {

struct SliceData {
    std::uint32_t rank = 0;
    Description job;           // the whole, of which this is a part
    const void *in = nullptr;  // the slice's first element
    void *out = nullptr;
    std::uint64_t numel = 0;  // of the slice; 0 sends the description alone
};

// Units that a slice takes at most; more than 32 bits hold means that the job is too long.
std::uint64_t count_units(std::uint64_t numel, switchml_dtype dtype, std::uint32_t packet_numel, std::uint32_t window);

class Slice {
  public:
    // `ahead`: the slice that the thread has under way, whose last packets are still in the slots; nullptr for none.
    Slice(const SliceData &data, const SlotRing &ring, std::uint32_t packet_numel, std::uint32_t num_workers,
          const Slice *ahead = nullptr);

    const SlotRing &ring() const noexcept { return ring_; }
    const Description &job() const noexcept { return data_.job; }  // as it is told to the others
    std::uint32_t units() const noexcept { return units_; }
    std::uint32_t lanes() const noexcept { return lanes_; }
    bool complete() const noexcept { return received_ == units_; }
    std::uint32_t received() const noexcept { return received_; }

    // Writes the whole packet of a unit that is being sent, for the first time or again.
    void build(std::uint32_t unit, std::uint8_t *packet) const;

    // Takes a result and says of which unit; nothing when this slice does not wait for it. Error EMISMATCH when it
    // tells that the workers' jobs differ.
    std::optional<std::uint32_t> accept(const wire::Header &header, const std::uint8_t *values);

    // Whether the unit exists and what it waits for has arrived.
    bool ready(std::uint32_t unit) const;

    // The slice ahead is complete.
    void forget_ahead() noexcept { ahead_ = nullptr; }

    // Marks a ready unit as sent.
    void mark_sent(std::uint32_t unit) { lane_of(unit) = {unit, true, lane_of(unit).maximum}; }

    bool outstanding(std::uint32_t lane) const { return state_[lane].outstanding; }
    std::uint32_t unit_of(std::uint32_t lane) const { return state_[lane].unit; }

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    struct Lane {
        std::uint32_t unit = kNone;  // the latest sent
        bool outstanding = false;
        Exponents maximum{0, 0};  // of the data unit whose exponent the latest result brought
    };

    Lane &lane_of(std::uint32_t unit) { return state_[unit % lanes_]; }
    const Lane &lane_of(std::uint32_t unit) const { return state_[unit % lanes_]; }
    bool has_result(std::uint32_t unit) const;
    bool slot_is_free(std::uint32_t unit) const;
    bool is_float() const noexcept { return data_.job.dtype == SWITCHML_FLOAT32; }
    std::size_t described_bytes() const noexcept { return 4 * std::size_t{kDescriptionWords} * num_workers_; }
    bool has_data(std::uint32_t unit) const noexcept { return unit >= lead_ && unit - lead_ < data_units_; }
    // Writes them behind the description, and says with which exponents the packet goes.
    Exponents add_exact_values(std::uint8_t *values) const;
    void check_description(const std::uint8_t *values) const;
    void take_exact(const wire::Header &header, const std::uint8_t *values) const;
    std::uint32_t numel_at(std::uint32_t data_unit) const;
    void prefetch_after(std::uint32_t data_unit) const;
    Exponents exponents_at(std::uint32_t data_unit) const;
    std::uint32_t quantize(std::uint32_t unit, std::uint8_t *values) const;
    std::uint32_t store(std::uint32_t unit, std::uint8_t *values) const;
    void take_float(std::uint32_t data_unit, const std::uint8_t *values);

    SliceData data_;
    SlotRing ring_;
    std::uint32_t packet_numel_;
    std::uint32_t num_workers_;
    const Slice *ahead_;
    std::uint32_t data_units_;
    std::uint32_t lanes_;  // B
    std::uint32_t lead_;   // units before the first with data
    std::uint32_t units_;
    std::uint32_t received_ = 0;
    std::vector<Lane> state_;
};

}  // namespace switchml::udp
