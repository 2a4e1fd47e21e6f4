// SPDX-License-Identifier: BSD-3-Clause
#include "eligibility.h"

namespace torch_switchml {

std::optional<Dtype> wire_dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return Dtype::kFloat32;
    case at::kInt:
      return Dtype::kInt32;
    default:
      return std::nullopt;
  }
}

std::optional<Fallback> reason_to_fall_back(
    const std::vector<at::Tensor>& tensors,
    const c10d::ReduceOp& op) {
  if (tensors.size() != 1) {
    return Fallback::kSeveralTensors;
  }
  if (static_cast<c10d::ReduceOp::RedOpType>(op) != c10d::ReduceOp::SUM) {
    return Fallback::kReduceOp;
  }
  const at::Tensor& tensor = tensors.front();
  if (tensor.layout() != at::kStrided) {
    return Fallback::kSparse;
  }
  if (!tensor.device().is_cpu()) {
    return Fallback::kDevice;
  }
  if (!wire_dtype_of(tensor.scalar_type())) {
    return Fallback::kDtype;
  }
  return std::nullopt;
}

} // namespace torch_switchml
