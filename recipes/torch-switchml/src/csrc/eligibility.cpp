// SPDX-License-Identifier: BSD-3-Clause
#include "eligibility.h"

#include "device_lane.h"

namespace torch_switchml {

std::optional<Dtype> wire_dtype_of(at::ScalarType type) {
    switch (type) {
        case at::kFloat:
        case at::kHalf:
        case at::kBFloat16: return Dtype::kFloat32;
        case at::kInt: return Dtype::kInt32;
        default: return std::nullopt;
    }
}

namespace {

// What SwitchML makes of its sums: all of it where the elements have
// fractions; averages and factors of int32 are left to gloo.
bool can_reduce(c10d::ReduceOp::RedOpType op, Dtype wire) {
    switch (op) {
        case c10d::ReduceOp::SUM: return true;
        case c10d::ReduceOp::AVG:
        case c10d::ReduceOp::PREMUL_SUM: return wire == Dtype::kFloat32;
        default: return false;
    }
}

}  // namespace

std::optional<Fallback> reason_to_fall_back(const std::vector<at::Tensor> &tensors, const c10d::ReduceOp &op,
                                            bool coalesced) {
    if (tensors.empty() || (tensors.size() > 1 && !coalesced)) {
        return Fallback::kSeveralTensors;
    }
    const at::Tensor &first = tensors.front();
    for (const at::Tensor &tensor : tensors) {
        if (tensor.layout() != at::kStrided) {
            return Fallback::kSparse;
        }
        if (tensor.device() != first.device() || !(first.is_cpu() || has_lane(first.device().type()))) {
            return Fallback::kDevice;
        }
        if (tensor.scalar_type() != first.scalar_type()) {
            return Fallback::kSeveralTensors;
        }
    }
    const auto kind = static_cast<c10d::ReduceOp::RedOpType>(op);
    const auto wire = wire_dtype_of(first.scalar_type());
    if (!can_reduce(kind, wire.value_or(Dtype::kFloat32))) {
        return Fallback::kReduceOp;
    }
    if (!wire) {
        return Fallback::kDtype;
    }
    return std::nullopt;
}

}  // namespace torch_switchml
