// SPDX-License-Identifier: BSD-3-Clause
//
// The collectives that the wrapped backend carries. It gets contiguous copies of
// strided tensors, made once what is pending over their memory has ended.
#include <utility>

#include "backend.h"
#include "contiguous.h"

namespace torch_switchml {

namespace {

using Tensors = SwitchMLBackend::Tensors;
using TensorLists = SwitchMLBackend::TensorLists;

Tensors all_of(Tensors tensors, const TensorLists &lists) {
    for (const auto &list : lists) {
        tensors.insert(tensors.end(), list.begin(), list.end());
    }
    return tensors;
}

TensorLists read_all(ContiguousCopies &copies, const TensorLists &lists) {
    TensorLists taken;
    for (const Tensors &list : lists) {
        taken.push_back(copies.read(list));
    }
    return taken;
}

TensorLists written_all(ContiguousCopies &copies, const TensorLists &lists) {
    TensorLists taken;
    for (const Tensors &list : lists) {
        taken.push_back(copies.written(list));
    }
    return taken;
}

}  // namespace

SwitchMLBackend::WorkPtr SwitchMLBackend::leave(const Tensors &tensors, const std::function<WorkPtr()> &call) {
    if (!session_) {
        return call();
    }
    const auto memory = std::make_shared<const Memory>(tensors);
    session_->await_jobs(*memory);
    WorkPtr work = call();
    session_->keep_behind(memory, work);
    return work;
}

void SwitchMLBackend::count_left(Collective collective) const {
    if (session_) {
        counters_->count_gloo_collective(collective);
    }
}

SwitchMLBackend::WorkPtr SwitchMLBackend::leave_allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    return leave(tensors, [&] {
        ContiguousCopies copies;
        Tensors taken = copies.written(tensors);
        return copies.hand_back(inner_->allreduce(taken, opts), {tensors});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::leave_allreduce_coalesced(Tensors &tensors,
                                                                    const c10d::AllreduceCoalescedOptions &opts) {
    return leave(tensors, [&] {
        ContiguousCopies copies;
        Tensors taken = copies.written(tensors);
        return copies.hand_back(inner_->allreduce_coalesced(taken, opts), {tensors});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) {
    return leave(tensors, [&] {
        ContiguousCopies copies;
        Tensors taken = opts.rootRank == rank_ ? copies.read(tensors) : copies.written(tensors);
        return copies.hand_back(inner_->broadcast(taken, opts), {tensors});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts) {
    return leave(tensors, [&] {
        ContiguousCopies copies;
        Tensors taken = opts.rootRank == rank_ ? copies.written(tensors) : copies.read(tensors);
        return copies.hand_back(inner_->reduce(taken, opts), {tensors});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::allgather(TensorLists &outputs, Tensors &inputs,
                                                    const c10d::AllgatherOptions &opts) {
    count_left(Collective::kAllGather);
    return leave(all_of(inputs, outputs), [&] {
        ContiguousCopies copies;
        Tensors given = copies.read(inputs);
        TensorLists taken = written_all(copies, outputs);
        return copies.hand_back(inner_->allgather(taken, given, opts), outputs);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                          const c10d::AllgatherOptions &opts) {
    count_left(Collective::kAllGather);
    return leave({output, input}, [&] {
        ContiguousCopies copies;
        at::Tensor given = copies.read(input);
        at::Tensor taken = copies.written(output);
        return copies.hand_back(inner_->_allgather_base(taken, given, opts), {{output}});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                                              const c10d::AllgatherOptions &opts) {
    count_left(Collective::kAllGather);
    return leave(all_of(inputs, outputs), [&] {
        ContiguousCopies copies;
        Tensors given = copies.read(inputs);
        TensorLists taken = written_all(copies, outputs);
        return copies.hand_back(inner_->allgather_coalesced(taken, given, opts), outputs);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                                          const c10d::AllgatherOptions &opts) {
    count_left(Collective::kAllGather);
    return leave(all_of(inputs, {outputs}), [&] {
        ContiguousCopies copies;
        Tensors given = copies.read(inputs);
        Tensors taken = copies.written(outputs);
        return copies.hand_back(inner_->allgather_into_tensor_coalesced(taken, given, opts), {outputs});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::gather(TensorLists &outputs, Tensors &inputs,
                                                 const c10d::GatherOptions &opts) {
    return leave(all_of(inputs, outputs), [&] {
        ContiguousCopies copies;
        Tensors given = copies.read(inputs);
        TensorLists taken = written_all(copies, outputs);
        return copies.hand_back(inner_->gather(taken, given, opts), outputs);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::scatter(Tensors &outputs, TensorLists &inputs,
                                                  const c10d::ScatterOptions &opts) {
    return leave(all_of(outputs, inputs), [&] {
        ContiguousCopies copies;
        TensorLists given = read_all(copies, inputs);
        Tensors taken = copies.written(outputs);
        return copies.hand_back(inner_->scatter(taken, given, opts), {outputs});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                                         const c10d::ReduceScatterOptions &opts) {
    count_left(Collective::kReduceScatter);
    return leave(all_of(outputs, inputs), [&] {
        ContiguousCopies copies;
        TensorLists given = read_all(copies, inputs);
        Tensors taken = copies.written(outputs);
        return copies.hand_back(inner_->reduce_scatter(taken, given, opts), {outputs});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                               const c10d::ReduceScatterOptions &opts) {
    count_left(Collective::kReduceScatter);
    return leave({output, input}, [&] {
        ContiguousCopies copies;
        at::Tensor given = copies.read(input);
        at::Tensor taken = copies.written(output);
        return copies.hand_back(inner_->_reduce_scatter_base(taken, given, opts), {{output}});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                                          const c10d::ReduceScatterOptions &opts) {
    count_left(Collective::kReduceScatter);
    return leave(all_of(outputs, {inputs}), [&] {
        ContiguousCopies copies;
        Tensors given = copies.read(inputs);
        Tensors taken = copies.written(outputs);
        return copies.hand_back(inner_->reduce_scatter_tensor_coalesced(taken, given, opts), {outputs});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                                        std::vector<int64_t> &output_split_sizes,
                                                        std::vector<int64_t> &input_split_sizes,
                                                        const c10d::AllToAllOptions &opts) {
    return leave({output, input}, [&] {
        ContiguousCopies copies;
        at::Tensor given = copies.read(input);
        at::Tensor taken = copies.written(output);
        return copies.hand_back(inner_->alltoall_base(taken, given, output_split_sizes, input_split_sizes, opts),
                                {{output}});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::alltoall(Tensors &outputs, Tensors &inputs,
                                                   const c10d::AllToAllOptions &opts) {
    return leave(all_of(outputs, {inputs}), [&] {
        ContiguousCopies copies;
        Tensors given = copies.read(inputs);
        Tensors taken = copies.written(outputs);
        return copies.hand_back(inner_->alltoall(taken, given, opts), {outputs});
    });
}

}  // namespace torch_switchml
