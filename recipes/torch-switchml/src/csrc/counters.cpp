// SPDX-License-Identifier: BSD-3-Clause
#include "counters.h"

namespace torch_switchml {

namespace {

constexpr uint64_t kElementBytes = 4; // float32 and int32 alike

template <typename Enum>
constexpr std::size_t index(Enum value) {
  return static_cast<std::size_t>(value);
}

} // namespace

const char* fallback_name(Fallback reason) {
  static constexpr std::array<const char*, index(Fallback::kCount)> kNames = {
      "group", "several_tensors", "reduce_op", "sparse", "device", "dtype"};
  return kNames.at(index(reason));
}

const char* dtype_name(Dtype dtype) {
  static constexpr std::array<const char*, index(Dtype::kCount)> kNames = {"float32", "int32"};
  return kNames.at(index(dtype));
}

void Counters::count_fallback(Fallback reason) {
  fallbacks_.at(index(reason)).fetch_add(1, std::memory_order_relaxed);
}

void Counters::count_completed(Dtype dtype, uint64_t elements) {
  auto& delegated = delegated_.at(index(dtype));
  delegated.jobs.fetch_add(1, std::memory_order_relaxed);
  delegated.elements.fetch_add(elements, std::memory_order_relaxed);
}

void Counters::count_failed() {
  failed_jobs_.fetch_add(1, std::memory_order_relaxed);
}

void Counters::count_copied() {
  copied_jobs_.fetch_add(1, std::memory_order_relaxed);
}

CountersSnapshot Counters::snapshot() const {
  CountersSnapshot result;
  for (std::size_t i = 0; i < delegated_.size(); ++i) {
    const uint64_t elements = delegated_[i].elements.load(std::memory_order_relaxed);
    result.delegated[dtype_name(static_cast<Dtype>(i))] = {
        delegated_[i].jobs.load(std::memory_order_relaxed), elements, elements * kElementBytes};
  }
  for (std::size_t i = 0; i < fallbacks_.size(); ++i) {
    result.fallbacks[fallback_name(static_cast<Fallback>(i))] =
        fallbacks_[i].load(std::memory_order_relaxed);
  }
  result.failed_jobs = failed_jobs_.load(std::memory_order_relaxed);
  result.copied_jobs = copied_jobs_.load(std::memory_order_relaxed);
  return result;
}

} // namespace torch_switchml
