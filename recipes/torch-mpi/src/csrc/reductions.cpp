// SPDX-License-Identifier: BSD-3-Clause
//
// The collectives that compute: allreduce, reduce, reduce_scatter.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "backend.h"
#include "buffer.h"
#include "elements.h"

namespace torch_mpi {

namespace {

// What PyTorch calls a coalesced reduce_scatter_tensor; 2.11 and older have no name for it.
template <class Type, class = void>
struct ReduceScatterTensorCoalesced {
    static constexpr Type value = Type::_REDUCE_SCATTER_BASE;
};
template <class Type>
struct ReduceScatterTensorCoalesced<Type, std::void_t<decltype(Type::REDUCE_SCATTER_TENSOR_COALESCED)>> {
    static constexpr Type value = Type::REDUCE_SCATTER_TENSOR_COALESCED;
};

// What each rank does to its own values before they are added up. AVG divides first, as PyTorch defines it: the mean of
// large numbers is one, though their sum is infinite.
void scale(Buffer &buffer, const Reduction &reduction, int size) {
    const at::NoGradGuard no_grad;
    if (reduction.average) {
        buffer.replace(at::div(buffer.memory(), size));
    } else if (reduction.factor) {
        buffer.replace(at::mul(buffer.memory(), *reduction.factor).to(buffer.memory().scalar_type()));
    }
}

struct InPlace {
    Buffer buffer;
    Reduction reduction;
};

InPlace prepare(const at::Tensor &tensor, const c10d::ReduceOp &op, int size) {
    InPlace one{Buffer::input(tensor), reduction_of(op, tensor.scalar_type())};
    scale(one.buffer, one.reduction, size);
    return one;
}

std::vector<InPlace> prepare_all(const std::vector<at::Tensor> &tensors, const c10d::ReduceOp &op, int size) {
    std::vector<InPlace> all;
    all.reserve(tensors.size());
    for (const at::Tensor &tensor : tensors) {
        InPlace one = prepare(tensor, op, size);
        if (std::any_of(all.begin(), all.end(),
                        [&one](const InPlace &other) { return one.buffer.overlaps(other.buffer); })) {
            one.buffer.separate();
        }
        all.push_back(std::move(one));
    }
    return all;
}

void allreduce_all(Operation &operation, std::vector<InPlace> all, MPI_Comm comm) {
    operation.start = [all, comm](Requests &requests) {
        for (const auto &[buffer, reduction] : all) {
            allreduce(buffer.data(), buffer.numel(), reduction.type, reduction.op, comm, requests);
        }
    };
    operation.finish = [all = std::move(all)] {
        for (const auto &one : all) {
            one.buffer.copy_back();
        }
    };
}

struct Scattered {
    Buffer input;
    Buffer output;
    Reduction reduction;
};

Scattered prepare_scattered(const at::Tensor &output, const at::Tensor &input, const c10d::ReduceOp &op, int size) {
    TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type() && input.numel() == output.numel() * size,
                      "torch-mpi: reduce_scatter of ", input.numel(), " ", input.scalar_type(), " elements over ", size,
                      " ranks does not fill ", output.numel(), " ", output.scalar_type(), " elements");
    Scattered one{Buffer::input(input), Buffer::output(output), reduction_of(op, input.scalar_type())};
    scale(one.input, one.reduction, size);
    if (one.output.overlaps(one.input)) {
        one.output.separate();
    }
    return one;
}

void scatter_all(Operation &operation, std::vector<Scattered> all, MPI_Comm comm) {
    operation.start = [all, comm](Requests &requests) {
        for (const auto &[input, output, reduction] : all) {
            reduce_scatter(input.data(), output.data(), output.numel(), reduction.type, reduction.op, comm, requests);
        }
    };
    operation.finish = [all = std::move(all)] {
        for (const auto &one : all) {
            one.output.copy_back();
        }
    };
}

std::vector<int64_t> sizes_of(const std::vector<at::Tensor> &tensors) {
    std::vector<int64_t> sizes;
    sizes.reserve(tensors.size());
    for (const at::Tensor &tensor : tensors) {
        sizes.push_back(tensor.numel());
    }
    return sizes;
}

}  // namespace

MpiBackend::WorkPtr MpiBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    only(tensors);
    Operation operation = make_operation(c10d::OpType::ALLREDUCE, "mpi:all_reduce", tensors, tensors, opts);
    allreduce_all(operation, prepare_all(tensors, opts.reduceOp, size_), group_->comm);
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) {
    Operation operation =
        make_operation(c10d::OpType::ALLREDUCE_COALESCED, "mpi:all_reduce_coalesced", tensors, tensors, opts);
    allreduce_all(operation, prepare_all(tensors, opts.reduceOp, size_), group_->comm);
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts) {
    const int root = static_cast<int>(opts.rootRank);
    const bool is_root = root == rank_;
    only(tensors);
    Operation operation = make_operation(c10d::OpType::REDUCE, "mpi:reduce", tensors, tensors, opts);
    const InPlace one = prepare(tensors.front(), opts.reduceOp, size_);
    operation.start = [one, root, is_root, comm = group_->comm](Requests &requests) {
        torch_mpi::reduce(one.buffer.data(), one.buffer.numel(), one.reduction.type, one.reduction.op, root, is_root,
                          comm, requests);
    };
    if (is_root) {
        operation.finish = [one] { one.buffer.copy_back(); };
    }
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                     const c10d::ReduceScatterOptions &opts) {
    Operation operation =
        make_operation(c10d::OpType::_REDUCE_SCATTER_BASE, "mpi:reduce_scatter", {input}, {output}, opts);
    scatter_all(operation, {prepare_scattered(output, input, opts.reduceOp, size_)}, group_->comm);
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                                const c10d::ReduceScatterOptions &opts) {
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "torch-mpi: as many outputs as inputs, got ", outputs.size(),
                      " and ", inputs.size());
    Operation operation = make_operation(ReduceScatterTensorCoalesced<c10d::OpType>::value,
                                         "mpi:reduce_scatter_coalesced", inputs, outputs, opts);
    std::vector<Scattered> all;
    for (size_t index = 0; index < inputs.size(); ++index) {
        all.push_back(prepare_scattered(outputs[index], inputs[index], opts.reduceOp, size_));
    }
    separate_outputs(all);
    scatter_all(operation, std::move(all), group_->comm);
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                               const c10d::ReduceScatterOptions &opts) {
    const at::Tensor &output = only(outputs);
    const Tensors &parts = only_list(inputs, size_);
    check_type(parts, output.scalar_type());
    const Parts places = Parts::of(sizes_of(parts));
    TORCH_CHECK_VALUE(places.counts[rank_] == output.numel(), "torch-mpi: reduce_scatter of parts of ",
                      places.counts[rank_], " elements into one of ", output.numel());
    const Reduction reduction = reduction_of(opts.reduceOp, output.scalar_type());
    Operation operation = make_operation(c10d::OpType::REDUCE_SCATTER, "mpi:reduce_scatter", parts, outputs, opts);
    Buffer input = Buffer::input(concatenated(parts));
    scale(input, reduction, size_);
    const Buffer result = Buffer::output(output);
    operation.start = [input, result, places, reduction, comm = group_->comm](Requests &requests) {
        reduce_scatterv(input.data(), result.data(), places, reduction.type, reduction.op, comm, requests);
    };
    operation.finish = [result] { result.copy_back(); };
    return start(std::move(operation));
}

}  // namespace torch_mpi
