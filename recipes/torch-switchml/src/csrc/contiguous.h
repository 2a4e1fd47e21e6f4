// SPDX-License-Identifier: BSD-3-Clause
//
// Strided tensors in calls of gloo, which takes each tensor's elements to lie
// one after the other in memory: it reads and writes others than the tensor's
// where they do not, or disagrees with ranks whose tensor is laid out otherwise.
// A call gets copies of such tensors, and they are written back before the call
// ends. A tensor that is contiguous is passed as it is.
#pragma once

#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace torch_switchml {

class ContiguousCopies {
  public:
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using Tensors = std::vector<at::Tensor>;
    using TensorLists = std::vector<Tensors>;

    // What the call is to take in place of a tensor that it only reads.
    at::Tensor read(const at::Tensor &tensor);
    Tensors read(const Tensors &tensors);
    TensorLists read(const TensorLists &lists);

    // The same where it also writes, or only writes.
    at::Tensor written(const at::Tensor &tensor);
    Tensors written(const Tensors &tensors);
    TensorLists written(const TensorLists &lists);

    // What the caller gets for the call's work: the work itself where nothing was
    // copied. `results` are the lists that the work would have had as its results,
    // with the caller's own tensors.
    WorkPtr hand_back(WorkPtr work, TensorLists results);

  private:
    struct Pair {
        at::Tensor target;
        at::Tensor copy;
    };

    at::Tensor copy_of(const at::Tensor &tensor);

    bool has_copied_ = false;
    std::vector<Pair> to_write_back_;
};

}  // namespace torch_switchml
