// SPDX-License-Identifier: BSD-3-Clause
#include "host_plan.h"

#include <algorithm>

namespace torch_switchml {

namespace {

// Below this a part is not worth the others' waiting for its rank.
constexpr uint64_t kLeastPartNumel = 4096;
constexpr uint64_t kCacheLineNumel = 16;

uint64_t quotient_up(uint64_t value, uint64_t divisor) { return (value + divisor - 1) / divisor; }

}  // namespace

uint64_t JobPlan::num_chunks() const { return numel / kChunkNumel + 1; }

uint64_t JobPlan::num_steps() const {
    const uint64_t last = quotient_up(numel % kChunkNumel, kStepNumel);
    return (num_chunks() - 1) * kStepsInChunk + std::max<uint64_t>(1, last);
}

uint64_t JobPlan::chunk_numel(uint64_t chunk) const { return std::min(kChunkNumel, numel - chunk_offset(chunk)); }

uint64_t JobPlan::chunk_offset(uint64_t chunk) const { return (chunk - first_chunk) * kChunkNumel; }

uint64_t JobPlan::chunk_end(uint64_t chunk) const {
    return first_step + std::min(num_steps(), (chunk - first_chunk + 1) * kStepsInChunk);
}

Part Step::part_of(std::size_t index, std::size_t num_ranks) const {
    const uint64_t parts = std::clamp<uint64_t>(quotient_up(numel, kLeastPartNumel), 1, num_ranks);
    const uint64_t part = quotient_up(quotient_up(numel, kCacheLineNumel), parts) * kCacheLineNumel;
    return {std::min(numel, index * part), std::min(numel, (index + 1) * part)};
}

Step find_step(const JobPlan &job, uint64_t number) {
    const uint64_t in_job = number - job.first_step;
    Step step;
    step.offset = std::min(job.numel, in_job * kStepNumel);
    step.numel = std::min(kStepNumel, job.numel - step.offset);
    step.chunk = job.first_chunk + in_job / kStepsInChunk;
    step.offset_in_chunk = in_job % kStepsInChunk * kStepNumel;
    return step;
}

}  // namespace torch_switchml
