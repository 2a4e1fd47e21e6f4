// SPDX-License-Identifier: BSD-3-Clause
//
// What a seed stands for: who computes what over which network, and what goes
// wrong when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agenda.hpp"
#include "switchml.h"

namespace switchml::simulation {

constexpr std::int64_t kRetransmitNs = 1 * kMs;
constexpr std::int64_t kJobTimeoutNs = 300 * kMs;
constexpr std::int64_t kLeaseNs = 300 * kMs;
constexpr std::int64_t kLongestDelayNs = 40 * kMs;
constexpr std::int64_t kSwitchDownNs = 3 * kMs;     // where it is started again
constexpr std::int64_t kLongestSetUpNs = 10 * kMs;  // of a session
constexpr std::size_t kMaxAttempts = 4;

// Mistakes that the model makes on demand, to show that the simulation finds what they lead to.
enum class Weakness {
    kNone,
    kPublishedRules,  // the switch takes packets by the published rules, which do not look at their numbers
    kStaleResults,    // workers take any result of a slot and set for the one that they wait for
};

struct NetworkPlan {
    double loss;
    double duplication;
    double delay;  // beyond what is usual
    double corruption;
    std::int64_t least_ns;  // of usual delays
    std::int64_t most_ns;
    std::int64_t faults_end_ns;  // from then on the network does what it should
};

struct JobPlan {
    std::uint64_t numel;
    switchml_dtype dtype;
    std::optional<std::uint32_t> odd_rank;  // one that submits another job
    bool non_finite;                        // of float32: NaN is among the values
};

struct Kill {
    std::uint32_t rank;
    std::int64_t after_ns;  // since the session began
};

// One job of a cluster: workers that open a session, reduce, and are started again when one was killed.
struct GroupPlan {
    std::uint32_t num_workers;
    std::uint32_t threads;
    std::uint32_t window;  // per thread
    std::uint32_t packet_numel;
    bool in_place;
    std::int64_t start_ns;
    std::vector<JobPlan> jobs;
    std::vector<Kill> kills;  // by attempt
};

struct Plan {
    std::uint64_t seed;
    NetworkPlan network;
    std::vector<GroupPlan> groups;
    std::vector<std::int64_t> switch_restarts_ns;
};

Plan make_plan(std::uint64_t seed);

}  // namespace switchml::simulation
