// SPDX-License-Identifier: BSD-3-Clause
//
// Which allreduces SwitchML carries. Pure, and blind to everything that may
// differ between ranks (strides, values, numel): one rank that decided
// otherwise than the rest would leave both transports waiting.
#pragma once

#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "counters.h"

namespace torch_switchml {

// The wire type that tensors of a dtype are summed in, else nothing. float16
// and bfloat16 travel as float32 and are rounded once, at the end.
std::optional<Dtype> wire_dtype_of(at::ScalarType type);

// Why this call stays with the wrapped backend; nothing when it is eligible.
// `coalesced` tensors are reduced each for itself; without it, several mean
// one tensor on several devices.
std::optional<Fallback> reason_to_fall_back(
    const std::vector<at::Tensor>& tensors,
    const c10d::ReduceOp& op,
    bool coalesced);

} // namespace torch_switchml
