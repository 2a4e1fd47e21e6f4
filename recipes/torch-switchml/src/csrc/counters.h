// SPDX-License-Identifier: BSD-3-Clause
//
// Who carried what in this process: one Counters object is shared by every
// wrapped group, so that a report survives the groups it speaks of.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace torch_switchml {

// Why an allreduce stayed with the wrapped backend. Each reason depends on the
// call alone and not on this rank's data, so all ranks decide alike.
enum class Fallback : std::size_t {
  kGroup = 0,      // another group than the default one
  kSeveralTensors, // coalesced, or a list of other than one tensor
  kReduceOp,       // other than SUM
  kSparse,         // any layout but the dense one
  kDevice,         // not on the CPU
  kDtype,          // neither float32 nor int32
  kCount,
};

enum class Dtype : std::size_t { kFloat32 = 0, kInt32, kCount };

const char* fallback_name(Fallback reason);
const char* dtype_name(Dtype dtype);

struct DelegatedSnapshot {
  uint64_t jobs;
  uint64_t elements;
  uint64_t bytes;
};

struct CountersSnapshot {
  std::map<std::string, DelegatedSnapshot> delegated; // by dtype, completed jobs only
  std::map<std::string, uint64_t> fallbacks;          // by reason
  uint64_t failed_jobs;
  uint64_t copied_jobs;
};

class Counters {
 public:
  void count_fallback(Fallback reason);
  void count_completed(Dtype dtype, uint64_t elements);
  void count_failed();
  // A job whose tensor was not contiguous and went through a copy.
  void count_copied();

  CountersSnapshot snapshot() const;

 private:
  struct Delegated {
    std::atomic<uint64_t> jobs{0};
    std::atomic<uint64_t> elements{0};
  };

  std::array<Delegated, static_cast<std::size_t>(Dtype::kCount)> delegated_;
  std::array<std::atomic<uint64_t>, static_cast<std::size_t>(Fallback::kCount)> fallbacks_{};
  std::atomic<uint64_t> failed_jobs_{0};
  std::atomic<uint64_t> copied_jobs_{0};
};

} // namespace torch_switchml
