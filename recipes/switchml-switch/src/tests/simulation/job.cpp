// SPDX-License-Identifier: BSD-3-Clause
#include "job.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "udp/description.hpp"
#include "udp/exact.hpp"
#include "udp/slots.hpp"

namespace switchml::simulation {
namespace {

std::uint32_t bits_of(float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_of(std::uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

__extension__ using Wide = __int128;

// Multiples of one power of two, whose sums are exact in 24 bits.
void add_floats(JobValues &job, const udp::Part &part, Random &random) {
    const float unit = std::ldexp(1.0F, static_cast<int>(random.between(-40, 40)));
    for (std::uint64_t i = part.first; i < part.first + part.numel; ++i) {
        std::int64_t sum = 0;
        for (auto &input : job.inputs) {
            const std::int64_t value = random.between(-100000, 100000);
            sum += value;
            input.values[i] = bits_of(static_cast<float>(value) * unit);
        }
        job.sums[i] = bits_of(static_cast<float>(sum) * unit);
    }
}

// So far apart that no fixed point of 32 bits holds them all: only the conversion of the sum to float rounds.
void add_floats_of_all_sizes(JobValues &job, const udp::Part &part, Random &random) {
    const int unit = static_cast<int>(random.between(-149, 10));
    for (std::uint64_t i = part.first; i < part.first + part.numel; ++i) {
        Wide sum = 0;
        for (auto &input : job.inputs) {
            const std::int64_t value = random.between(-0xFFFFFF, 0xFFFFFF);
            const int shift = static_cast<int>(random.chance(0.3) ? 0 : random.between(0, 90));
            sum += value * (Wide{1} << shift);
            input.values[i] = bits_of(std::ldexp(static_cast<float>(value), unit + shift));
        }
        job.sums[i] = bits_of(std::ldexp(static_cast<float>(sum), unit));
    }
}

// Thread by thread, as each thread's share says whether it is summed exactly.
void add_floats(JobValues &job, const GroupPlan &group, Random &random) {
    for (std::uint32_t thread = 0; thread < group.threads; ++thread) {
        const udp::Part part = udp::part_of(job.sums.size(), group.threads, thread);
        if (part.numel <= most_exact(group))
            add_floats_of_all_sizes(job, part, random);
        else
            add_floats(job, part, random);
    }
}

void add_ints(JobValues &job, Random &random) {
    for (auto &input : job.inputs) {
        for (std::size_t i = 0; i < job.sums.size(); ++i) {
            input.values[i] = static_cast<std::uint32_t>(random.next());
            job.sums[i] += input.values[i];
        }
    }
}

// One value that is no number makes its packet's all so.
void poison(JobValues &job, const GroupPlan &group, Random &random) {
    const std::uint64_t numel = job.sums.size();
    const std::uint64_t where = random.below(numel);
    job.inputs[random.below(group.num_workers)].values[where] = bits_of(std::numeric_limits<float>::infinity());
    for (std::uint32_t thread = 0; thread < group.threads; ++thread) {
        const udp::Part part = udp::part_of(numel, group.threads, thread);
        if (where < part.first || where >= part.first + part.numel) continue;
        const std::uint64_t first = where - (where - part.first) % group.packet_numel;
        for (std::uint64_t i = first; i < first + group.packet_numel && i < part.first + part.numel; ++i)
            job.sums[i] = bits_of(std::numeric_limits<float>::quiet_NaN());
    }
}

}  // namespace

std::uint32_t most_exact(const GroupPlan &group) {
    return udp::exact_capacity(group.packet_numel - udp::kDescriptionWords * group.num_workers);
}

JobValues make_job(const GroupPlan &group, const JobPlan &plan, Random &random) {
    JobValues job;
    job.inputs.assign(group.num_workers, {plan.dtype, Bits(plan.numel)});
    job.sums.assign(plan.numel, 0);
    if (plan.dtype == SWITCHML_FLOAT32) {
        add_floats(job, group, random);
        if (plan.non_finite && plan.numel > 0) poison(job, group, random);
    } else {
        add_ints(job, random);
    }
    if (plan.odd_rank && group.num_workers > 1) {
        job.agreed = false;
        JobValues::Input &odd = job.inputs[*plan.odd_rank];
        if (random.chance(0.5))
            odd.dtype = plan.dtype == SWITCHML_FLOAT32 ? SWITCHML_INT32 : SWITCHML_FLOAT32;
        else
            odd.values.resize(plan.numel + 1 + random.below(200));
    }
    return job;
}

std::optional<std::string> find_wrong(const JobValues &job, const Bits &result) {
    if (!job.agreed) return "although the ranks submitted different jobs";
    const bool floats = job.inputs[0].dtype == SWITCHML_FLOAT32;
    for (std::size_t i = 0; i < result.size(); ++i) {
        const bool right = !floats                             ? result[i] == job.sums[i]
                           : std::isnan(float_of(job.sums[i])) ? std::isnan(float_of(result[i]))
                                                               : float_of(result[i]) == float_of(job.sums[i]);
        if (right) continue;
        const auto text = [&](std::uint32_t bits) {
            return floats ? std::to_string(float_of(bits)) : std::to_string(static_cast<std::int32_t>(bits));
        };
        return "with a wrong sum: element " + std::to_string(i) + " is " + text(result[i]) + ", expected " +
               text(job.sums[i]);
    }
    return std::nullopt;
}

}  // namespace switchml::simulation
