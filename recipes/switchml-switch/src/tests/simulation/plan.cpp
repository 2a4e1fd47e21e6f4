// SPDX-License-Identifier: BSD-3-Clause
#include "plan.hpp"

#include "job.hpp"

namespace switchml::simulation {
namespace {

// Most schedules have a few kinds of faults only, so that one kind does not hide another.
double rate(Random &random, double highest) { return random.chance(0.5) ? 0 : highest * random.fraction(); }

NetworkPlan make_network(Random &random) {
    NetworkPlan plan{};
    plan.loss = rate(random, 0.3);
    plan.duplication = rate(random, 0.3);
    plan.delay = rate(random, 0.3);
    plan.corruption = rate(random, 0.1);
    plan.least_ns = 5 * kUs;
    plan.most_ns = random.chance(0.5) ? 6 * kUs : 2 * kRetransmitNs;
    plan.faults_end_ns = random.chance(0.2) ? 3600'000 * kMs : random.between(5, 100) * kMs;
    return plan;
}

JobPlan make_job(Random &random, const GroupPlan &group) {
    JobPlan plan{};
    const std::uint64_t most = std::uint64_t{group.packet_numel} * group.threads * 2 * (group.window + 1);
    plan.numel = random.chance(0.05) ? 0 : random.below(most) + 1;
    // Exact sums, and shares of which one has an element too many for that.
    if (random.chance(0.3)) plan.numel = random.below(std::uint64_t{group.threads} * (most_exact(group) + 1)) + 1;
    plan.dtype = random.chance(0.5) ? SWITCHML_FLOAT32 : SWITCHML_INT32;
    if (random.chance(0.02)) plan.odd_rank = static_cast<std::uint32_t>(random.below(group.num_workers));
    plan.non_finite = random.chance(0.05);
    return plan;
}

GroupPlan make_group(Random &random) {
    GroupPlan plan{};
    plan.num_workers = static_cast<std::uint32_t>(random.between(1, 3));
    plan.threads = random.chance(0.25) ? 2 : 1;
    plan.window = static_cast<std::uint32_t>(random.chance(0.1) ? random.between(5, 16) : random.between(1, 4));
    plan.packet_numel = random.chance(0.05) ? 256 : 64;
    plan.in_place = random.chance(0.5);
    plan.start_ns = random.between(0, 10) * kMs;
    const std::int64_t jobs = random.between(1, 4);
    for (std::int64_t i = 0; i < jobs; ++i) plan.jobs.push_back(make_job(random, plan));
    const std::int64_t kills = random.chance(0.2) ? random.between(1, 2) : 0;
    for (std::int64_t i = 0; i < kills; ++i) {
        plan.kills.push_back({static_cast<std::uint32_t>(random.below(plan.num_workers)), random.between(0, 20 * kMs)});
    }
    return plan;
}

}  // namespace

Plan make_plan(std::uint64_t seed) {
    Random random(seed);
    Plan plan{};
    plan.seed = seed;
    plan.network = make_network(random);
    const int groups = random.chance(0.3) ? 2 : 1;
    for (int i = 0; i < groups; ++i) plan.groups.push_back(make_group(random));
    if (random.chance(0.1)) plan.switch_restarts_ns.push_back(random.between(0, 40 * kMs));
    return plan;
}

}  // namespace switchml::simulation
