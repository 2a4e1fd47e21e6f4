// SPDX-License-Identifier: BSD-3-Clause
#include "slot_table.hpp"

#include <algorithm>

#include "wire/values.hpp"

namespace switchml::softswitch {

SlotTable::SlotTable()
    : states_(2 * wire::kNumSlots), values_(new std::int32_t[2 * wire::kNumSlots * wire::kMaxPacketNumel]) {}

void SlotTable::reset(std::uint32_t num_workers, std::uint32_t numel, const std::optional<Numbering> &numbering) {
    num_workers_ = num_workers;
    numel_ = numel;
    std::fill(states_.begin(), states_.end(), State{});
    window_ = numbering ? numbering->window : 0;
    if (numbering) number_slots(*numbering);
}

void SlotTable::number_slots(const Numbering &numbering) {
    due_.assign(wire::kNumSlots, Due{0, false, false});
    for (std::uint32_t thread = 0; thread < numbering.threads; ++thread) {
        for (std::uint32_t position = 0; position < window_; ++position) {
            due_.at(2 * window_ * thread + position) = {numbering.first + position, false, true};
        }
    }
}

Verdict SlotTable::update(const Contribution &contribution) {
    return window_ > 0 ? update_numbered(contribution) : update_published(contribution);
}

Verdict SlotTable::update_published(const Contribution &contribution) {
    const std::size_t index = index_of(contribution.slot, contribution.set);
    const std::uint32_t mine = 1U << contribution.rank;
    // Using this set acknowledges the result of the other one.
    states_[index_of(contribution.slot, !contribution.set)].seen &= ~mine;
    if (states_[index].seen == 0) return open(index, contribution);
    return add(index, contribution);
}

Verdict SlotTable::update_numbered(const Contribution &contribution) {
    const std::size_t index = index_of(contribution.slot, contribution.set);
    const State &state = states_[index];
    if (state.seen != 0 && state.number == contribution.number) return add(index, contribution);
    Due &due = due_[contribution.slot];
    if (!due.used || due.number != contribution.number || due.set != contribution.set) return Verdict::kStale;
    // Whoever opens the next use has the result of this one, so it is complete, and the use before it is over for all.
    const State &current = states_[index_of(contribution.slot, !contribution.set)];
    if (current.seen != 0 && current.left != 0) return Verdict::kStale;
    due = {due.number + window_, !due.set, true};
    return open(index, contribution);
}

Verdict SlotTable::open(std::size_t index, const Contribution &contribution) {
    State &state = states_[index];
    wire::value_kernels().load(values_of(index), contribution.values, numel_);
    state = {1U << contribution.rank, static_cast<std::uint8_t>(num_workers_ - 1), contribution.e0, contribution.e1,
             contribution.number};
    return state.left == 0 ? Verdict::kCompleted : Verdict::kAccumulated;
}

Verdict SlotTable::add(std::size_t index, const Contribution &contribution) {
    State &state = states_[index];
    const std::uint32_t mine = 1U << contribution.rank;
    if ((state.seen & mine) != 0) return state.left == 0 ? Verdict::kRepeated : Verdict::kDuplicate;
    wire::value_kernels().add(values_of(index), contribution.values, numel_);
    state.seen |= mine;
    state.left = static_cast<std::uint8_t>(state.left - 1);
    state.e0 = std::max(state.e0, contribution.e0);
    state.e1 = std::max(state.e1, contribution.e1);
    return state.left == 0 ? Verdict::kCompleted : Verdict::kAccumulated;
}

void SlotTable::read(std::uint16_t slot, bool set, wire::Header &header, std::uint8_t *values) const {
    const std::size_t index = index_of(slot, set);
    header.e0 = states_[index].e0;
    header.e1 = states_[index].e1;
    wire::value_kernels().store(values, values_of(index), numel_);
}

}  // namespace switchml::softswitch
