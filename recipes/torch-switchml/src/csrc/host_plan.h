// SPDX-License-Identifier: BSD-3-Clause
//
// How the ranks of a host cut jobs: pure, and the same on all of them. A job's
// elements go in steps (a part of each rank's staging area), and steps in
// chunks (a slot of the results, and one job of the wire). Steps and chunks are
// numbered through a session, so that how far a rank has come is a number that
// only grows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "counters.h"

namespace torch_switchml {

// A cache line more than a power of two: jobs of 2^n elements, as most are, end within a chunk (see num_chunks).
constexpr uint64_t kStepNumel = (1 << 16) + 16;
constexpr uint64_t kStepsInStaging = 4;
constexpr uint64_t kStepsInChunk = 16;
constexpr uint64_t kChunkNumel = kStepsInChunk * kStepNumel;
constexpr uint64_t kChunksInResults = 3;

// A job's place among those of its session.
struct JobPlan {
    uint64_t numel = 0;
    Dtype dtype = Dtype::kFloat32;
    uint64_t number = 0;
    uint64_t first_step = 0;
    uint64_t first_chunk = 0;

    // Every chunk but the last is full, and the last never is: so the wire's
    // jobs, which it compares by their size, tell where a job of ours ends. There
    // is one, and a step, also where there are no elements.
    uint64_t num_chunks() const;
    uint64_t num_steps() const;
    uint64_t chunk_numel(uint64_t chunk) const;
    uint64_t chunk_offset(uint64_t chunk) const;
    // The number of the step after the chunk's last.
    uint64_t chunk_end(uint64_t chunk) const;
};

// What a rank adds up of a step: elements begin to end of it.
struct Part {
    uint64_t begin = 0;
    uint64_t end = 0;

    bool empty() const { return begin == end; }
    uint64_t numel() const { return end - begin; }
};

struct Step {
    uint64_t offset = 0;  // elements of the job before it
    uint64_t numel = 0;
    uint64_t chunk = 0;
    uint64_t offset_in_chunk = 0;

    // The first rank, which leads, has a part of all that has elements, the
    // others only where there is enough for them.
    Part part_of(std::size_t index, std::size_t num_ranks) const;
};

Step find_step(const JobPlan &job, uint64_t number);

}  // namespace torch_switchml
