// SPDX-License-Identifier: BSD-3-Clause
#include "buffer.h"

#include <atomic>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/MPICudaAware.hpp>

#include "counters.h"
#include "library.h"

namespace torch_mpi {

namespace {

std::atomic<DevicePolicy> policy{DevicePolicy::kAuto};

// MPI knows nothing of streams: what the tensor is made of has to be there.
void synchronize(const at::Tensor &tensor) {
    if (!tensor.is_cpu()) {
        const c10::impl::VirtualGuardImpl device(tensor.device().type());
        device.getStream(tensor.device()).synchronize();
    }
}

// Whether MPI is given the memory of the tensor's device. Throws where it was
// asked for and cannot be; says once where the host's memory is taken instead.
bool given_as_it_is(const at::Tensor &tensor) {
    if (tensor.is_cpu()) {
        return true;
    }
    const c10d::CudaAwareness answer =
        tensor.is_cuda() ? c10d::cudaAwareness() : c10d::CudaAwareness{false, "MPI can be asked about CUDA alone"};
    const DevicePolicy wanted = policy;
    if (wanted == DevicePolicy::kRequire && !answer.aware) {
        throw_backend_error("TORCH_MPI_GPU=require, and MPI does not take tensors of " + tensor.device().str() + ": " +
                            answer.reason);
    }
    if (answer.aware && wanted != DevicePolicy::kHost) {
        return true;
    }
    Counters::get().add_staged();
    TORCH_WARN_ONCE("torch-mpi: tensors of ", tensor.device().str(), " go through the host's memory: ",
                    wanted == DevicePolicy::kHost ? "TORCH_MPI_GPU=host" : answer.reason);
    return false;
}

bool is_plain(const at::Tensor &tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

at::Tensor empty_for_mpi(const at::Tensor &tensor, at::IntArrayRef sizes, bool on_device) {
    auto options = tensor.options().layout(at::kStrided).requires_grad(false).memory_format(std::nullopt);
    if (!on_device) {
        options = options.device(at::kCPU).pinned_memory(true);
    }
    return at::empty(sizes, options);
}

// Of the same memory, which it keeps also where the caller gives his own other memory (`tensor.data = other`). Without
// the dispatcher, in which the caller's modes would see it.
at::Tensor sharing(const at::Tensor &tensor) {
    return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(), true));
}

}  // namespace

void set_device_policy(DevicePolicy wanted) { policy = wanted; }

Buffer::Buffer(const at::Tensor &tensor, bool has_values) : tensor_(sharing(tensor)) {
    TORCH_CHECK_VALUE(tensor_.layout() == at::kStrided, "torch-mpi: dense tensors only, got one of ", tensor_.layout());
    const at::NoGradGuard no_grad;
    const bool as_it_is = given_as_it_is(tensor_);
    if (as_it_is && is_plain(tensor_)) {
        memory_ = tensor_;
        synchronize(tensor_);
        return;
    }
    memory_ = empty_for_mpi(tensor_, tensor_.sizes(), as_it_is);
    if (has_values) {
        memory_.copy_(tensor_);
    }
    synchronize(tensor_);
}

Buffer Buffer::input(const at::Tensor &tensor) { return {tensor, true}; }

Buffer Buffer::output(const at::Tensor &tensor) { return {tensor, false}; }

at::Tensor Buffer::scratch(const at::Tensor &tensor, int64_t numel) {
    return empty_for_mpi(tensor, {numel}, given_as_it_is(tensor));
}

void Buffer::separate() {
    const at::NoGradGuard no_grad;
    replace(memory_.clone());
}

void Buffer::replace(at::Tensor values) {
    memory_ = std::move(values);
    synchronize(memory_);
}

void Buffer::copy_back() const {
    if (!memory_.is_same(tensor_)) {
        copy_into(tensor_, memory_);
    }
}

bool Buffer::overlaps(const Buffer &other) const {
    const auto *const mine = static_cast<const char *>(data());
    const auto *const theirs = static_cast<const char *>(other.data());
    return mine < theirs + other.memory_.nbytes() && theirs < mine + memory_.nbytes();
}

void copy_into(const at::Tensor &tensor, const at::Tensor &from) {
    const at::AutoDispatchBelowADInplaceOrView below;  // also of inference mode, which this thread need not be in
    tensor.copy_(from);
    synchronize(tensor);
}

}  // namespace torch_mpi
