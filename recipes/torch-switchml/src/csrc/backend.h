// SPDX-License-Identifier: BSD-3-Clause
//
// The process group backend that users' gloo groups get: it carries eligible
// allreduces over SwitchML and hands every other call to the backend it wraps.
// Composition, because gloo's own headers do not ship with PyTorch. Everything
// virtual in c10d::Backend is forwarded; the guards say in which minor version
// of PyTorch a function came, read from its headers 2.5 to 2.13.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "counters.h"
#include "session.h"

#define TORCH_SWITCHML_SINCE(minor) \
    (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= (minor)))

namespace torch_switchml {

class SwitchMLBackend : public c10d::Backend {
  public:
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using Tensors = std::vector<at::Tensor>;
    using TensorLists = std::vector<std::vector<at::Tensor>>;

    // `named` answers to "switchml" instead of the wrapped backend's name.
    SwitchMLBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<Counters> counters, bool named);
    ~SwitchMLBackend() override;

    // Before the first collective. `session` is null for a group without one: it
    // only counts. With `required` an allreduce that the wrapped backend would
    // carry is an error.
    void attach(std::shared_ptr<Session> session, bool required);

    const c10::intrusive_ptr<c10d::Backend> &inner() const { return inner_; }

    // Allreduces handed to SwitchML so far.
    uint64_t delegated() const { return session_ ? session_->submitted() : 0; }

    // What SwitchML changes.
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    uint64_t getSequenceNumberForGroup() override;

    // What it only hands on.
    const std::string getBackendName() const override;
    bool supportsSplitting() const override;
    void startCoalescing() override;
    WorkPtr endCoalescing() override;
    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs, const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_split_sizes,
                          std::vector<int64_t> &input_split_sizes, const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;
    void setSequenceNumberForGroup() override;
    WorkPtr send(Tensors &tensors, int destination, int tag) override;
    WorkPtr recv(Tensors &tensors, int source, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) override;
    void waitForPendingWorks() override;
    void enableCollectivesTiming() override;
    void eagerConnectSingleDevice(at::Device device) override;
#if TORCH_SWITCHML_SINCE(7)
    bool supportsCoalescing() const override;
    c10d::ErrorType getError() override;
    std::shared_ptr<c10::Allocator> getMemAllocator() override;
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;
    bool supportsTensorAlloc(c10::DeviceIndex device) override;
    void abort() override;
    void shutdown() override;
#endif
#if TORCH_SWITCHML_SINCE(8)
    bool supportsTimeEstimation() const override;
#endif
#if TORCH_SWITCHML_SINCE(9)
    void setTimeout(std::chrono::milliseconds timeout) override;
    c10::intrusive_ptr<Options> getBackendOptions() override;
    c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                      const c10::intrusive_ptr<Options> &opts) override;
    c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store> &store,
                                      const c10::intrusive_ptr<Options> &opts, const int &rank,
                                      const int &size) override;
#endif
#if TORCH_SWITCHML_SINCE(10)
    bool supportsShrinking() const override;
    c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t> &ranks_to_exclude, int shrink_flags,
                                       const c10::intrusive_ptr<Options> &opts_override) override;
    void setGroupUid(const std::string &group_uid) override;
#endif
#if TORCH_SWITCHML_SINCE(12)
    void suspend() override;
    void resume() override;
    std::unordered_map<std::string, uint64_t> getMemoryStats() override;
#endif

  private:
    // Counts the fallback; throws where none is allowed.
    void fall_back(Fallback reason) const;
    void count_left(Collective collective) const;
    // A collective of the wrapped backend; its place among the session's jobs over
    // the same memory is that of the call. Messages have none, as with NCCL.
    WorkPtr leave(const Tensors &tensors, const std::function<WorkPtr()> &call);
    // The same with copies of strided tensors: `call` gets what to write, then what to read.
    template <typename Outputs, typename Inputs, typename Call>
    WorkPtr leave_contiguous(const Outputs &outputs, const Inputs &inputs, Call call);
    // The same for tensors that each rank reads and, where `is_written`, writes.
    template <typename Call>
    WorkPtr leave_in_place(const Tensors &tensors, bool is_written, Call call);
    WorkPtr leave_allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts);
    WorkPtr leave_allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts);
    CallLimits::Limit limit_of(std::chrono::milliseconds timeout) const;
    WorkPtr delegate(const Tensors &tensors, const c10d::AllreduceOptions &opts);

    const bool named_;
    bool required_ = false;
    c10::intrusive_ptr<c10d::Backend> inner_;
    const std::shared_ptr<Counters> counters_;
    std::shared_ptr<Session> session_;
    std::atomic<std::chrono::milliseconds> timeout_{std::chrono::milliseconds(0)};  // of setTimeout(); 0: none
};

}  // namespace torch_switchml
