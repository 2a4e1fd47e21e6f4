// SPDX-License-Identifier: BSD-3-Clause
#include "job.h"

#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

namespace torch_switchml {

namespace {

at::ScalarType type_on_wire(Dtype dtype) { return dtype == Dtype::kFloat32 ? at::kFloat : at::kInt; }

// The one tensor itself where it can travel as it is.
bool travels_as_it_is(const std::vector<at::Tensor> &tensors, Dtype wire, const Reduction &reduction) {
    const at::Tensor &first = tensors.front();
    return tensors.size() == 1 && !reduction.factor && first.scalar_type() == type_on_wire(wire) &&
           first.is_contiguous();
}

// Where each tensor begins: in a packet of its own, for a packet has one exponent, by which small values beside large
// ones would become 0; and the end of the last.
std::vector<int64_t> offsets_of(const std::vector<at::Tensor> &tensors) {
    constexpr int64_t kPacketNumel = 256;  // of the longest packets
    std::vector<int64_t> offsets;
    offsets.reserve(tensors.size() + 1);
    int64_t end = 0;
    for (const at::Tensor &tensor : tensors) {
        offsets.push_back((end + kPacketNumel - 1) / kPacketNumel * kPacketNumel);
        end = offsets.back() + tensor.numel();
    }
    offsets.push_back(end);
    return offsets;
}

// Calls `action(tensor, its part of flat)` for each tensor.
template <typename Action>
void for_each_part(const std::vector<at::Tensor> &tensors, const at::Tensor &flat, Action action) {
    const std::vector<int64_t> offsets = offsets_of(tensors);
    for (size_t index = 0; index < tensors.size(); ++index) {
        const at::Tensor &tensor = tensors[index];
        action(tensor, flat.narrow(0, offsets[index], tensor.numel()).view(tensor.sizes()));
    }
}

// One buffer of the wire's type with all elements, multiplied by the factor.
at::Tensor flatten(const std::vector<at::Tensor> &tensors, Dtype wire, const Reduction &reduction) {
    at::Tensor flat = at::empty({offsets_of(tensors).back()}, tensors.front().options().dtype(type_on_wire(wire)));
    if (tensors.size() > 1) {
        flat.zero_();  // between them
    }
    for_each_part(tensors, flat, [](const at::Tensor &tensor, const at::Tensor &part) { part.copy_(tensor); });
    if (reduction.factor) {
        flat.mul_(*reduction.factor);
    }
    return flat;
}

std::vector<at::Tensor> sharing(const std::vector<at::Tensor> &tensors) {
    std::vector<at::Tensor> shares;
    shares.reserve(tensors.size());
    for (const at::Tensor &tensor : tensors) {
        shares.push_back(share(tensor));
    }
    return shares;
}

}  // namespace

at::Tensor share(const at::Tensor &tensor) {
    return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(), true));
}

std::exception_ptr backend_error(const std::string &message) {
    return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, message));
}

void *Session::Transfer::data() {
    static float nothing = 0;  // the library takes no null buffer, also for no elements
    return wire.numel() == 0 ? &nothing : wire.mutable_data_ptr();
}

Session::Job::Job(std::shared_ptr<Session> owner, const std::vector<at::Tensor> &addends, Dtype type,
                  const Reduction &what)
    : tensors(sharing(addends)), reduction(what) {
    session = std::move(owner);
    dtype = type;
    is_copy = !travels_as_it_is(tensors, dtype, reduction);
    memory = std::make_shared<const Memory>(tensors);
}

uint64_t Session::Job::total() const {
    int64_t numel = 0;
    for (const at::Tensor &tensor : tensors) {
        numel += tensor.numel();
    }
    return static_cast<uint64_t>(numel);
}

Session::Access Session::Job::access() const { return {memory, work, !is_copy && !reduction.average && !lane, {}}; }

std::string Session::Job::describe() const {
    return "SwitchML allreduce of " + std::to_string(total()) + " " + dtype_name(dtype) + " elements";
}

void Session::Job::prepare() {
    const at::AutoDispatchBelowADInplaceOrView below;
    if (!lane) {
        wire = is_copy ? flatten(tensors, dtype, reduction) : tensors.front();
        return;
    }
    const c10::StreamGuard guard(lane->out());
    ready->block(lane->out());
    lane->await_written(*memory, lane->out());
    flat = is_copy ? flatten(tensors, dtype, reduction) : tensors.front().view({-1});
    lane->hold(flat);
}

// Works run below autograd, so that writing a result back neither records a
// gradient nor refuses a leaf or an inference tensor.
void Session::Job::write_back() {
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor &sum = lane ? flat : wire;
    if (reduction.average) {
        at::Tensor(sum).div_(session->options_.size);
    }
    if (is_copy) {
        for_each_part(tensors, sum, [](const at::Tensor &tensor, const at::Tensor &part) { tensor.copy_(part); });
    }
}

void Session::Job::add_error(std::exception_ptr part_error) noexcept {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    if (!error) {
        error = std::move(part_error);
    }
}

Session::Part::Part(Job &job, at::Tensor on_device, std::unique_ptr<DeviceLane::Chunk> memory)
    : whole(&job), target(std::move(on_device)), chunk(std::move(memory)) {
    session = job.session;
    dtype = job.dtype;
}

}  // namespace torch_switchml
