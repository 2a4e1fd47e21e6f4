// SPDX-License-Identifier: BSD-3-Clause
//
// One schedule from its first event to its last, and what has to hold of it:
// - a job that ends well has the exact sums, on every rank
// - a job fails only where something stood in its way
// - everything ends, in bounded time
// - packets under way and sessions of the switch are bounded
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "group.hpp"
#include "network.hpp"
#include "plan.hpp"

namespace switchml::simulation {

struct Totals {
    NetworkCounts network;
    GroupCounts groups;
    std::uint64_t schedules = 0;
    std::uint64_t switch_restarts = 0;
    std::uint64_t most_in_flight = 0;

    void add(const Totals &other);
};

struct Outcome {
    std::optional<std::string> violation;
    std::int64_t ended_ns = 0;
    std::vector<Fault> faults;
    Totals totals;
};

// `left_out`: keys of faults that do not happen.
Outcome simulate(const Plan &plan, Weakness weakness, const std::set<std::uint64_t> &left_out = {});

// The keys of faults that can be left out of a schedule that breaks a promise so that it still breaks one.
std::set<std::uint64_t> minimise(const Plan &plan, Weakness weakness);

}  // namespace switchml::simulation
