// SPDX-License-Identifier: BSD-3-Clause
//
// Where the elements of tensors are, by which the engine tells whether two calls
// meet in memory and so have to keep their order.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

namespace torch_mpi {

class Memory {
  public:
    // From each tensor's first element to its last, what lies between strides
    // too. Of dense tensors alone: others are refused.
    explicit Memory(const std::vector<at::Tensor> &tensors);

    bool overlaps(const Memory &other) const;

  private:
    struct Range {
        c10::Device device;
        uintptr_t begin;
        uintptr_t end;

        // Of a device and before `other` there.
        bool is_before(const Range &other) const;
    };

    std::vector<Range> ranges_;  // ascending, apart from each other
};

}  // namespace torch_mpi
