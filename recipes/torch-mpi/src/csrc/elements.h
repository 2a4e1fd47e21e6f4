// SPDX-License-Identifier: BSD-3-Clause
//
// PyTorch's element types and reductions in MPI's words. 16-bit floats, which
// MPI lacks, have an MPI_Op of ours, and so has what MPI libraries reduce in
// another way than PyTorch: MIN and MAX of floats and of integers without sign,
// sums of integers of 8 and 16 bits, products of complex numbers.
#pragma once

#include <mpi.h>

#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace torch_mpi {

// What is only moved goes as words of the element's size, whatever they mean.
MPI_Datatype moved_as(const at::Tensor &tensor);

struct Reduction {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Op op = MPI_OP_NULL;
    std::optional<at::Tensor> factor;  // of each rank's values, before
    bool average = false;              // each rank's values are divided by the number of ranks, before
};

// Throws c10::TypeError or c10::ValueError for what MPI cannot reduce.
Reduction reduction_of(const c10d::ReduceOp &op, at::ScalarType type);

// Makes what is ours in MPI, once it is started, and gives it back before it ends.
void make_elements();
void free_elements();

}  // namespace torch_mpi
