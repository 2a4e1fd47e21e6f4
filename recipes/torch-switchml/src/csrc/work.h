// SPDX-License-Identifier: BSD-3-Clause
//
// What the collectives of a delegating backend hand back.
#pragma once

#include <cstdint>
#include <exception>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace torch_switchml {

// An allreduce carried by the SwitchML transport.
class DelegatedWork : public c10d::Work {
  public:
    // `title`, which outlives the work, is what the profiler calls it.
    DelegatedWork(int rank, std::vector<at::Tensor> tensors, uint64_t sequence_number, const char *title);

    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override;

    const std::vector<at::Tensor> &tensors() const { return tensors_; }

    // Has the calling thread's current stream wait for a device's tensors; wait()
    // calls it.
    void synchronize() override;

    // Ends the work, once: the future first, as gloo does, so that whoever
    // returns from wait() finds the future complete. What a callback in C++
    // throws, and want of memory, become the work's error. For tensors of a device
    // the current stream is the one that completes them.
    void complete(std::exception_ptr error) noexcept;

  private:
    void end_profile();

    const std::vector<at::Tensor> tensors_;
    const uint64_t sequence_number_;
    const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A barrier of the wrapped backend that, like gloo's own, also stands for the
// allreduces issued before it on this rank, whoever carries them.
class BarrierWork : public c10d::Work {
  public:
    BarrierWork(int rank, c10::intrusive_ptr<c10d::Work> barrier, std::vector<c10::intrusive_ptr<c10d::Work>> before);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    bool wait(std::chrono::milliseconds timeout) override;
    std::vector<at::Tensor> result() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    uint64_t getSequencenumber() const override;

  private:
    const c10::intrusive_ptr<c10d::Work> barrier_;
    const std::vector<c10::intrusive_ptr<c10d::Work>> before_;
};

}  // namespace torch_switchml
