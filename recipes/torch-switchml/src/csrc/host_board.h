// SPDX-License-Identifier: BSD-3-Clause
//
// What the ranks of a host keep in the memory they share: how far each has
// come, the elements on their way, and why they failed if they did.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <switchml.h>

#include "host_memory.h"
#include "host_plan.h"

namespace torch_switchml {

constexpr std::size_t kMaxHostRanks = 64;
// What a rank wants to reduce in a step, for comparison.
struct StepDescription {
    uint64_t job = 0;  // counted by each rank
    uint64_t numel = 0;
    uint64_t dtype = 0;

    bool operator==(const StepDescription &other) const {
        return job == other.job && numel == other.numel && dtype == other.dtype;
    }
};

// One rank's: only it writes, but for the doorbell.
struct alignas(64) RankProgress {
    std::atomic<uint64_t> copied;                // steps whose elements are in its staging area
    std::atomic<uint64_t> reduced;               // steps whose part it has summed
    std::atomic<uint64_t> taken;                 // chunks whose result it has
    std::atomic<uint32_t> left;                  // 1: takes part in nothing more
    alignas(64) std::atomic<uint32_t> doorbell;  // a futex: grows when there may be news for it
    std::atomic<uint32_t> asleep;
    StepDescription steps[kStepsInStaging];
};

struct BoardMemory {
    alignas(64) std::atomic<uint64_t> carried;  // chunks whose result the wire has brought
    alignas(64) std::atomic<uint32_t> failure;  // 0: none, 1: being written, 2: written
    int32_t failure_status;
    char failure_reason[2048];
    RankProgress ranks[kMaxHostRanks];
};

struct HostFailure {
    switchml_status status;
    std::string reason;
};

// One rank's view. Everything but wait() and the peers' watch may be called
// from any thread.
class HostBoard {
  public:
    // `ranks` are the numbers by which people know the ranks of this host, the
    // leader's first; `index` is this one's among them. Throw as HostMemory, and
    // std::runtime_error for more than kMaxHostRanks.
    static std::shared_ptr<HostBoard> create(std::vector<int> ranks);
    static std::shared_ptr<HostBoard> attach(const std::string &address, std::vector<int> ranks, std::size_t index);

    ~HostBoard();
    HostBoard(const HostBoard &) = delete;
    HostBoard &operator=(const HostBoard &) = delete;

    const std::string &address() const { return memory_->address(); }

    // Remembers the other ranks' processes, by index, so that dead_peer() sees
    // when one ends. Throws std::runtime_error where the system does not let it.
    void watch(const std::vector<int> &processes);

    // Once all ranks have attached, nobody else can.
    void seal() { memory_->seal(); }

    std::size_t size() const { return ranks_.size(); }
    std::size_t index() const { return index_; }
    bool leads() const { return index_ == 0; }
    int rank(std::size_t index) const { return ranks_[index]; }
    RankProgress &progress(std::size_t index) const { return board_->ranks[index]; }
    RankProgress &own() const { return progress(index_); }
    std::atomic<uint64_t> &carried() const { return board_->carried; }

    using Counter = std::atomic<uint64_t> RankProgress::*;
    // What every rank has reached.
    uint64_t reached_by_all(Counter counter) const;
    // Advances the own counter to `value`, and rings where that made it everybody's.
    void advance(Counter counter, uint64_t value);

    // Where a rank's elements of a step wait, and a chunk's result.
    char *staging(std::size_t index, uint64_t step) const;
    char *result(uint64_t chunk) const;

    void ring(std::size_t index) const noexcept;
    void ring_all() const noexcept;
    // Returns when the doorbell is no longer at `seen`, or after the time.
    void wait(uint32_t seen, int64_t limit_ns) const noexcept;

    // The first one of all ranks' stays.
    void fail(switchml_status status, const std::string &reason) noexcept;
    bool failed() const { return board_->failure.load() != 0; }
    HostFailure failure() const;

    // The index of a rank whose process has ended although it did not leave().
    // size() where there is none.
    std::size_t dead_peer() const;
    void leave() noexcept;

  private:
    HostBoard(std::unique_ptr<HostMemory> memory, std::vector<int> ranks, std::size_t index);

    const std::unique_ptr<HostMemory> memory_;
    const std::vector<int> ranks_;
    const std::size_t index_;
    BoardMemory *const board_;
    std::vector<int> peers_;  // pidfds by index, -1 for this one
};

}  // namespace torch_switchml
