// SPDX-License-Identifier: BSD-3-Clause
//
// The process group backend "mpi": c10d's collectives as MPI's non-blocking ones.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "work.h"

#define TORCH_MPI_SINCE(minor) (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

namespace torch_mpi {

// What all of c10d's options have in common.
struct CallOptions {
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    bool is_waited_for = false;

    CallOptions() = default;

    template <typename Options>
    CallOptions(const Options &opts) : timeout(opts.timeout), is_waited_for(waits(opts, 0)) {}  // NOLINT(*-explicit-*)

  private:
    // Not all options of all minor versions say so.
    template <typename Options>
    static auto waits(const Options &opts, int) -> decltype(!opts.asyncOp) {
        return !opts.asyncOp;
    }
    template <typename Options>
    static bool waits(const Options &, long) {
        return false;
    }
};

class MpiBackend final : public c10d::Backend {
  public:
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using Tensors = std::vector<at::Tensor>;
    using TensorLists = std::vector<std::vector<at::Tensor>>;

    // The backend of a group of these ranks of MPI_COMM_WORLD, of all where there
    // are none. Its members call it, and wait for each other. Throws
    // c10::DistBackendError where they did not all come within the time limit.
    static c10::intrusive_ptr<MpiBackend> create(const std::vector<int> &ranks, std::chrono::milliseconds timeout);

    MpiBackend(std::shared_ptr<Group> group, std::chrono::milliseconds timeout);
    ~MpiBackend() override;

    const std::string getBackendName() const override { return "mpi"; }

    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs, const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override;

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_split_sizes,
                          std::vector<int64_t> &input_split_sizes, const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;

    WorkPtr send(Tensors &tensors, int destination, int tag) override;
    WorkPtr recv(Tensors &tensors, int source, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;

    void startCoalescing() override;
    WorkPtr endCoalescing() override;

    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override { return calls_; }
#if TORCH_MPI_SINCE(7)
    void abort() override;
    void shutdown() override;
    c10d::ErrorType getError() override;
#endif
#if TORCH_MPI_SINCE(9)
    void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
    c10::intrusive_ptr<Options> getBackendOptions() override;
#endif
    std::chrono::milliseconds timeout() const { return timeout_; }

  private:
    // The operation of a call, but for what it does. `title` is "mpi:" and a name.
    // Waits for the collectives before it over the same memory, so that its buffers
    // are to be made afterwards. Who asks for them in a row without waiting has
    // what PyTorch's own MPI backend keeps by a queue; MPI itself forbids two such.
    Operation make_operation(c10d::OpType type, const char *title, Tensors inputs, Tensors outputs,
                             CallOptions opts = {}) const;
    WorkPtr start(Operation operation);

    // Under TORCH_DISTRIBUTED_DEBUG=DETAIL, before a collective: throws on all
    // ranks where they do not all make the same call. MPI does not look, and
    // gives them values that nobody sent.
    void compare_ranks(const Operation &operation) const;
    WorkPtr start_receipt(Tensors &tensors, int source, int tag, c10d::OpType type);

    const std::shared_ptr<Group> group_;
    std::chrono::milliseconds timeout_;
    std::atomic<uint64_t> calls_{0};
    bool is_coalescing_ = false;
    std::vector<c10::intrusive_ptr<MpiWork>> coalesced_;
};

// The one tensor, or the one list with a tensor for each rank; c10::ValueError otherwise.
const at::Tensor &only(const std::vector<at::Tensor> &tensors);
const std::vector<at::Tensor> &only_list(const std::vector<std::vector<at::Tensor>> &lists, int size);

// c10::ValueError where one is of another type.
void check_type(const std::vector<at::Tensor> &tensors, at::ScalarType type);

// All elements of the tensors, one behind the other.
at::Tensor concatenated(const std::vector<at::Tensor> &tensors);

}  // namespace torch_mpi
