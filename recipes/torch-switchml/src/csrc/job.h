// SPDX-License-Identifier: BSD-3-Clause
//
// What a session holds while an allreduce is under way. Private to session.h.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device_lane.h"
#include "session.h"

namespace torch_switchml {

// What works and futures raise.
std::exception_ptr backend_error(const std::string &message);

// A tensor of the same memory, which it keeps also where the caller gives his own other memory (`tensor.data = other`).
// Without the dispatcher, in which the caller's modes would see it.
at::Tensor share(const at::Tensor &tensor);

// One job of the library, which owns it until it calls back; then the pool.
struct Session::Transfer : CompletionPool::Task {
    std::shared_ptr<Session> session;  // a callback may drop every other reference
    at::Tensor wire;                   // what travels, on the CPU and contiguous
    Dtype dtype = Dtype::kFloat32;
    std::exception_ptr error;

    uint64_t numel() const { return static_cast<uint64_t>(wire.numel()); }
    void *data();

    // The allreduce that it is of, for error messages.
    virtual std::string describe() const = 0;
};

// One allreduce. Of tensors on the CPU it is itself the one transfer; what is
// on a device travels as Parts of it.
struct Session::Job final : Transfer {
    c10::intrusive_ptr<DelegatedWork> work;
    std::vector<at::Tensor> tensors;
    Reduction reduction;
    bool is_copy = false;  // `wire` or `flat` is, of the tensors
    std::shared_ptr<const Memory> memory;
    uint64_t number = 0;  // among the session's calls
    CallLimits::Limit limit;

    // Of a device's tensors alone:
    std::shared_ptr<DeviceLane> lane;
    std::optional<c10::Event> ready;  // the caller's stream has made the addends
    at::Tensor flat;                  // all elements, on the device
    std::atomic<int> open_parts{1};   // and one for whoever still makes parts

    Job(std::shared_ptr<Session> owner, const std::vector<at::Tensor> &addends, Dtype type, const Reduction &what);

    void run() noexcept override { session->complete(*this); }
    std::string describe() const override;
    uint64_t total() const;
    Access access() const;

    // Makes `wire`, or on the lane's stream `flat`, of the tensors.
    void prepare();

    // From there into the tensors, and the average if that is asked for.
    void write_back();

    // Keeps the first of the parts' errors.
    void add_error(std::exception_ptr part_error) noexcept;

  private:
    std::mutex error_mutex_;
};

// As much of a device's tensors as a chunk of host memory holds.
struct Session::Part final : Transfer {
    Job *whole;  // deleted after its last part
    at::Tensor target;
    std::unique_ptr<DeviceLane::Chunk> chunk;

    Part(Job &job, at::Tensor on_device, std::unique_ptr<DeviceLane::Chunk> memory);

    void run() noexcept override { session->complete_part(*this); }
    std::string describe() const override { return whole->describe(); }
};

// On the feeding thread: an allreduce that a device's tensors are, or that
// comes after one.
struct Session::Feeding final : CompletionPool::Task {
    std::unique_ptr<Job> job;

    explicit Feeding(std::unique_ptr<Job> next) : job(std::move(next)) {}
    void run() noexcept override;
};

}  // namespace torch_switchml
