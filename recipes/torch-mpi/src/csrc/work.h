// SPDX-License-Identifier: BSD-3-Clause
//
// What a collective hands back, and one group's part of MPI.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "calls.h"
#include "memory.h"

namespace torch_mpi {

using Clock = std::chrono::steady_clock;

// What a collective reads and writes.
struct Access {
    Memory read;
    Memory written;

    bool meets(const Access &other) const;
};

// A communicator and its end. Its fields are guarded by the engine's lock.
struct Group {
    MPI_Comm comm = MPI_COMM_NULL;
    int rank = 0;
    int size = 1;
    std::optional<std::string> failure;  // why it takes no more calls
    bool has_lost = false;               // operations that failed while MPI still had them
    std::string name;                    // PyTorch's
    uint64_t calls = 0;                  // collectives that were asked for
    // Of the collectives whose tensors are not final yet.
    std::vector<std::shared_ptr<const Access>> unsettled;
};

// One collective: what MPI is to do, and what is done before and after.
struct Operation {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char *title = "";  // what the profiler calls it; outlives the work
    std::string name;        // for messages and counters: "all_reduce"
    std::string group_name;  // PyTorch's
    uint64_t number = 0;     // among the group's collectives, from 1; none for messages
    uint64_t elements = 0;
    uint64_t bytes = 0;
    std::vector<at::Tensor> inputs;        // for the profiler, whose events have a receipt's tensor here too
    std::vector<at::Tensor> outputs;       // the result
    std::shared_ptr<const Access> access;  // null for messages, which keep no order with others
    bool is_waited_for = false;            // the caller waits at once: no thread of ours need look after it
    std::chrono::milliseconds timeout{0};
    std::function<void(Requests &)> start;         // makes the requests; under the engine's lock
    std::function<void()> finish;                  // copies out; on the thread that completes it
    MPI_Datatype received_as = MPI_DATATYPE_NULL;  // of a receipt: `elements` of it have to come
    bool is_barrier = false;                       // also stands for the collectives asked for before it

    // One rank's affair with another, which may come to it after a barrier only.
    bool is_message() const {
        return type == c10d::OpType::SEND || type == c10d::OpType::RECV || type == c10d::OpType::RECVANYSOURCE;
    }
};

class MpiWork final : public c10d::Work {
  public:
    MpiWork(std::shared_ptr<Group> group, Operation operation);

    bool wait(std::chrono::milliseconds timeout) override;
    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    int sourceRank() const override;
    void abort() override;

  private:
    friend class Engine;

    // What becomes of it: MPI has it; one thread took it to end it.
    enum class State { kRunning, kTaken };

    std::string describe() const;

    // Of a receipt, once it has ended: who sent it, and whether it is whole.
    void read_statuses();

    // Copies out and ends the work: the future first, so that whoever returns from
    // wait() finds it complete. Once, by the thread that took it; without locks.
    void complete() noexcept;
    void end_profile();

    const std::shared_ptr<Group> group_;
    Operation operation_;
    const Clock::time_point deadline_;
    const c10::intrusive_ptr<c10::ivalue::Future> future_;
    int source_ = -1;

    // Guarded by the engine's lock:
    State state_ = State::kRunning;
    Requests requests_;
    std::vector<MPI_Status> statuses_;
    int waiters_ = 0;
    bool is_promised_ = false;                         // one of the waiters has yet to come
    std::vector<c10::intrusive_ptr<MpiWork>> before_;  // of a barrier: what has to have ended as well
    std::exception_ptr error_;
};

// Ends when several works have ended: what is between startCoalescing and endCoalescing.
class SeveralWorks final : public c10d::Work {
  public:
    explicit SeveralWorks(std::vector<c10::intrusive_ptr<MpiWork>> works);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    bool wait(std::chrono::milliseconds timeout) override;
    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  private:
    const std::vector<c10::intrusive_ptr<MpiWork>> works_;
};

}  // namespace torch_mpi
