// SPDX-License-Identifier: BSD-3-Clause
//
// Who carried what in this process: one Counters object is shared by every
// wrapped group, so that a report survives the groups it speaks of.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace torch_switchml {

// Why an allreduce stayed with the wrapped backend. Each reason depends on the
// call alone and not on this rank's data, so all ranks decide alike.
enum class Fallback : std::size_t {
    kGroup = 0,       // a group without a session
    kSeveralTensors,  // a list of other than one tensor, or coalesced ones of several dtypes
    kReduceOp,        // other than SUM, or AVG and PREMUL_SUM of floats
    kSparse,          // any layout but the dense one
    kDevice,          // on several devices, or on one without streams of its own
    kDtype,           // other than float32, float16, bfloat16 and int32
    kCount,
};

enum class Dtype : std::size_t { kFloat32 = 0, kInt32, kCount };
constexpr uint64_t kElementBytes = 4;  // of both

// Collectives of the default group that SwitchML could speed up, and does not:
// whoever shards a model has these instead of allreduces.
enum class Collective : std::size_t { kAllGather = 0, kReduceScatter, kCount };

const char *fallback_name(Fallback reason);
// The same for people.
const char *explain_fallback(Fallback reason);
const char *dtype_name(Dtype dtype);
const char *collective_name(Collective collective);

struct DelegatedSnapshot {
    uint64_t jobs;
    uint64_t elements;
    uint64_t bytes;
};

struct CountersSnapshot {
    std::map<std::string, DelegatedSnapshot> delegated;  // by dtype, completed jobs only
    std::map<std::string, uint64_t> fallbacks;           // by reason
    std::map<std::string, uint64_t> gloo_collectives;    // by name
    uint64_t failed_jobs;
    uint64_t copied_jobs;
    uint64_t jobs_reduced_in_host;
    uint64_t elements_reduced_in_host;
    uint64_t device_jobs;
};

class Counters {
  public:
    // `on_first_collective` is called with its name when gloo carries one of a
    // kind for the first time.
    explicit Counters(std::function<void(const std::string &)> on_first_collective = nullptr);

    void count_fallback(Fallback reason);
    void count_completed(Dtype dtype, uint64_t elements);
    void count_failed();
    void count_gloo_collective(Collective collective);
    // A job whose tensors went through a copy: several, of another dtype than the
    // wire's, not contiguous, or to be multiplied.
    void count_copied();
    // A completed job whose elements the ranks of this host added among themselves.
    void count_reduced_in_host(uint64_t elements);
    // A job of a device's tensors, which went through the host's memory.
    void count_device_job();

    CountersSnapshot snapshot() const;

  private:
    struct Delegated {
        std::atomic<uint64_t> jobs{0};
        std::atomic<uint64_t> elements{0};
    };

    std::array<Delegated, static_cast<std::size_t>(Dtype::kCount)> delegated_;
    std::array<std::atomic<uint64_t>, static_cast<std::size_t>(Fallback::kCount)> fallbacks_{};
    std::array<std::atomic<uint64_t>, static_cast<std::size_t>(Collective::kCount)> gloo_collectives_{};
    const std::function<void(const std::string &)> on_first_collective_;
    std::atomic<uint64_t> failed_jobs_{0};
    std::atomic<uint64_t> copied_jobs_{0};
    std::atomic<uint64_t> jobs_reduced_in_host_{0};
    std::atomic<uint64_t> elements_reduced_in_host_{0};
    std::atomic<uint64_t> device_jobs_{0};
};

}  // namespace torch_switchml
