// SPDX-License-Identifier: BSD-3-Clause
#include "slot_table.hpp"

#include <algorithm>

#include "wire/values.hpp"

namespace switchml::softswitch {

SlotTable::SlotTable()
    : states_(2 * wire::kNumSlots), values_(new std::int32_t[2 * wire::kNumSlots * wire::kMaxPacketNumel]) {}

void SlotTable::reset(std::uint32_t num_workers, std::uint32_t numel) {
    num_workers_ = num_workers;
    numel_ = numel;
    std::fill(states_.begin(), states_.end(), State{});
}

Verdict SlotTable::update(const Contribution &contribution) {
    const std::size_t index = index_of(contribution.slot, contribution.set);
    State &state = states_[index];
    const std::uint32_t mine = 1U << contribution.rank;
    const std::uint32_t before = state.seen;
    state.seen |= mine;
    // Using this set acknowledges the result of the other one.
    states_[index_of(contribution.slot, !contribution.set)].seen &= ~mine;
    if ((before & mine) != 0) return state.left == 0 ? Verdict::kRepeated : Verdict::kDuplicate;
    if (before == 0) {
        wire::value_kernels().load(values_of(index), contribution.values, numel_);
        state.left = static_cast<std::uint8_t>(num_workers_ - 1);
        state.e0 = contribution.e0;
        state.e1 = contribution.e1;
    } else {
        wire::value_kernels().add(values_of(index), contribution.values, numel_);
        state.left = static_cast<std::uint8_t>(state.left - 1);
        state.e0 = std::max(state.e0, contribution.e0);
        state.e1 = std::max(state.e1, contribution.e1);
    }
    return state.left == 0 ? Verdict::kCompleted : Verdict::kAccumulated;
}

void SlotTable::read(std::uint16_t slot, bool set, wire::Header &header, std::uint8_t *values) const {
    const std::size_t index = index_of(slot, set);
    header.e0 = states_[index].e0;
    header.e1 = states_[index].e1;
    wire::value_kernels().store(values, values_of(index), numel_);
}

}  // namespace switchml::softswitch
