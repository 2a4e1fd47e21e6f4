// SPDX-License-Identifier: BSD-3-Clause
#include "faults.hpp"

#include <algorithm>
#include <utility>

namespace switchml::softswitch {
namespace {

constexpr std::size_t kMaxHeld = 65536;
constexpr std::uint64_t kMostOvertakers = 8;
// A packet that is to be overtaken does not wait longer than this for those that overtake it.
constexpr std::chrono::milliseconds kOvertakingLimit{5};

}  // namespace

FaultyLink::Fate FaultyLink::admit(const wire::Endpoint &endpoint, const std::uint8_t *data, std::size_t bytes,
                                   Clock::time_point now) {
    ++admitted_;
    if (chance(rates_.drop)) {
        ++counters_.dropped;
        return Fate::kDropped;
    }
    const auto hold = [&](Clock::time_point due, std::optional<std::uint64_t> overtaken_at) {
        held_.push_back({{endpoint, {data, data + bytes}}, due, overtaken_at});
    };
    if (held_.size() + 2 > kMaxHeld) return Fate::kDelivered;
    if (chance(rates_.duplicate)) {
        ++counters_.duplicated;
        hold(now, std::nullopt);
    }
    if (chance(rates_.delay)) {
        ++counters_.delayed;
        hold(now + std::chrono::duration_cast<Clock::duration>(rates_.longest_delay * uniform_(random_)), std::nullopt);
        return Fate::kHeld;
    }
    if (chance(rates_.reorder)) {
        ++counters_.reordered;
        hold(now + kOvertakingLimit, admitted_ + 1 + random_() % kMostOvertakers);
        return Fate::kHeld;
    }
    return Fate::kDelivered;
}

std::vector<FaultyLink::Packet> FaultyLink::due(Clock::time_point now) {
    std::vector<Packet> packets;
    const auto is_due = [&](const Held &held) {
        return held.due <= now || (held.overtaken_at && *held.overtaken_at <= admitted_);
    };
    for (Held &held : held_) {
        if (is_due(held)) packets.push_back(std::move(held.packet));
    }
    held_.erase(std::remove_if(held_.begin(), held_.end(), is_due), held_.end());
    return packets;
}

std::optional<FaultyLink::Clock::time_point> FaultyLink::next_due() const {
    if (held_.empty()) return std::nullopt;
    const auto first =
        std::min_element(held_.begin(), held_.end(), [](const Held &a, const Held &b) { return a.due < b.due; });
    return first->due;
}

}  // namespace switchml::softswitch
