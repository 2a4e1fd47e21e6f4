// SPDX-License-Identifier: BSD-3-Clause
#include "counters.h"

#include <utility>

namespace torch_switchml {

namespace {

template <typename Enum>
constexpr std::size_t index(Enum value) {
    return static_cast<std::size_t>(value);
}

}  // namespace

const char *fallback_name(Fallback reason) {
    static constexpr std::array<const char *, index(Fallback::kCount)> kNames = {
        "group", "several_tensors", "reduce_op", "sparse", "device", "dtype"};
    return kNames.at(index(reason));
}

const char *explain_fallback(Fallback reason) {
    static constexpr std::array<const char *, index(Fallback::kCount)> kTexts = {
        "it is of another group than the default one, and that has no session",
        "its tensors are several, not of one dtype, or none",
        "its operation is not SUM (nor AVG or PREMUL_SUM of floats)",
        "its tensor is sparse",
        "its tensors are on several devices, or on one whose streams SwitchML cannot use",
        "its dtype is none of float32, float16, bfloat16 and int32"};
    return kTexts.at(index(reason));
}

const char *dtype_name(Dtype dtype) {
    static constexpr std::array<const char *, index(Dtype::kCount)> kNames = {"float32", "int32"};
    return kNames.at(index(dtype));
}

const char *collective_name(Collective collective) {
    static constexpr std::array<const char *, index(Collective::kCount)> kNames = {"all_gather", "reduce_scatter"};
    return kNames.at(index(collective));
}

Counters::Counters(std::function<void(const std::string &)> on_first_collective)
    : on_first_collective_(std::move(on_first_collective)) {}

void Counters::count_gloo_collective(Collective collective) {
    const uint64_t before = gloo_collectives_.at(index(collective)).fetch_add(1, std::memory_order_relaxed);
    if (before == 0 && on_first_collective_) {
        on_first_collective_(collective_name(collective));
    }
}

void Counters::count_fallback(Fallback reason) { fallbacks_.at(index(reason)).fetch_add(1, std::memory_order_relaxed); }

void Counters::count_completed(Dtype dtype, uint64_t elements) {
    auto &delegated = delegated_.at(index(dtype));
    delegated.jobs.fetch_add(1, std::memory_order_relaxed);
    delegated.elements.fetch_add(elements, std::memory_order_relaxed);
}

void Counters::count_failed() { failed_jobs_.fetch_add(1, std::memory_order_relaxed); }

void Counters::count_copied() { copied_jobs_.fetch_add(1, std::memory_order_relaxed); }

void Counters::count_device_job() { device_jobs_.fetch_add(1, std::memory_order_relaxed); }

void Counters::count_reduced_in_host(uint64_t elements) {
    jobs_reduced_in_host_.fetch_add(1, std::memory_order_relaxed);
    elements_reduced_in_host_.fetch_add(elements, std::memory_order_relaxed);
}

CountersSnapshot Counters::snapshot() const {
    CountersSnapshot result;
    for (std::size_t i = 0; i < delegated_.size(); ++i) {
        const uint64_t elements = delegated_[i].elements.load(std::memory_order_relaxed);
        result.delegated[dtype_name(static_cast<Dtype>(i))] = {delegated_[i].jobs.load(std::memory_order_relaxed),
                                                               elements, elements * kElementBytes};
    }
    for (std::size_t i = 0; i < fallbacks_.size(); ++i) {
        result.fallbacks[fallback_name(static_cast<Fallback>(i))] = fallbacks_[i].load(std::memory_order_relaxed);
    }
    for (std::size_t i = 0; i < gloo_collectives_.size(); ++i) {
        result.gloo_collectives[collective_name(static_cast<Collective>(i))] =
            gloo_collectives_[i].load(std::memory_order_relaxed);
    }
    result.failed_jobs = failed_jobs_.load(std::memory_order_relaxed);
    result.copied_jobs = copied_jobs_.load(std::memory_order_relaxed);
    result.jobs_reduced_in_host = jobs_reduced_in_host_.load(std::memory_order_relaxed);
    result.elements_reduced_in_host = elements_reduced_in_host_.load(std::memory_order_relaxed);
    result.device_jobs = device_jobs_.load(std::memory_order_relaxed);
    return result;
}

}  // namespace torch_switchml
