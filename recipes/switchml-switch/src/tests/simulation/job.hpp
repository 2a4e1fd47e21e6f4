// SPDX-License-Identifier: BSD-3-Clause
//
// The values of a job and what their sums have to be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan.hpp"

namespace switchml::simulation {

using Bits = std::vector<std::uint32_t>;  // of int32 or float32 values

struct JobValues {
    struct Input {
        switchml_dtype dtype;
        Bits values;
    };

    bool agreed = true;         // all ranks submit the same job
    std::vector<Input> inputs;  // by rank
    Bits sums;                  // where they agree
};

// Elements of float32 in a thread's share that are summed exactly.
std::uint32_t most_exact(const GroupPlan &group);

JobValues make_job(const GroupPlan &group, const JobPlan &plan, Random &random);

// What is wrong with a rank's result, nothing where every bit is right.
std::optional<std::string> find_wrong(const JobValues &job, const Bits &result);

}  // namespace switchml::simulation
