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

TensorLists lists_of(const at::Tensor &tensor) { return {{tensor}}; }
TensorLists lists_of(const Tensors &tensors) { return {tensors}; }
const TensorLists &lists_of(const TensorLists &lists) { return lists; }

Tensors all_of(const TensorLists &some, const TensorLists &others) {
    Tensors all;
    for (const TensorLists *lists : {&some, &others}) {
        for (const Tensors &list : *lists) {
            all.insert(all.end(), list.begin(), list.end());
        }
    }
    return all;
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

template <typename Outputs, typename Inputs, typename Call>
SwitchMLBackend::WorkPtr SwitchMLBackend::leave_contiguous(const Outputs &outputs, const Inputs &inputs, Call call) {
    return leave(all_of(lists_of(outputs), lists_of(inputs)), [&] {
        ContiguousCopies copies;
        Inputs given = copies.read(inputs);
        Outputs taken = copies.written(outputs);
        return copies.hand_back(call(taken, given), lists_of(outputs));
    });
}

template <typename Call>
SwitchMLBackend::WorkPtr SwitchMLBackend::leave_in_place(const Tensors &tensors, bool is_written, Call call) {
    return leave(tensors, [&] {
        ContiguousCopies copies;
        Tensors taken = is_written ? copies.written(tensors) : copies.read(tensors);
        return copies.hand_back(call(taken), {tensors});
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::leave_allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    return leave_in_place(tensors, true, [&](Tensors &taken) { return inner_->allreduce(taken, opts); });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::leave_allreduce_coalesced(Tensors &tensors,
                                                                    const c10d::AllreduceCoalescedOptions &opts) {
    return leave_in_place(tensors, true, [&](Tensors &taken) { return inner_->allreduce_coalesced(taken, opts); });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) {
    return leave_in_place(tensors, opts.rootRank != rank_,
                          [&](Tensors &taken) { return inner_->broadcast(taken, opts); });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts) {
    return leave_in_place(tensors, opts.rootRank == rank_, [&](Tensors &taken) { return inner_->reduce(taken, opts); });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::allgather(TensorLists &outputs, Tensors &inputs,
                                                    const c10d::AllgatherOptions &opts) {
    count_left(Collective::kAllGather);
    return leave_contiguous(outputs, inputs,
                            [&](TensorLists &taken, Tensors &given) { return inner_->allgather(taken, given, opts); });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                          const c10d::AllgatherOptions &opts) {
    count_left(Collective::kAllGather);
    return leave_contiguous(output, input, [&](at::Tensor &taken, at::Tensor &given) {
        return inner_->_allgather_base(taken, given, opts);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                                              const c10d::AllgatherOptions &opts) {
    count_left(Collective::kAllGather);
    return leave_contiguous(outputs, inputs, [&](TensorLists &taken, Tensors &given) {
        return inner_->allgather_coalesced(taken, given, opts);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                                          const c10d::AllgatherOptions &opts) {
    count_left(Collective::kAllGather);
    return leave_contiguous(outputs, inputs, [&](Tensors &taken, Tensors &given) {
        return inner_->allgather_into_tensor_coalesced(taken, given, opts);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::gather(TensorLists &outputs, Tensors &inputs,
                                                 const c10d::GatherOptions &opts) {
    return leave_contiguous(outputs, inputs,
                            [&](TensorLists &taken, Tensors &given) { return inner_->gather(taken, given, opts); });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::scatter(Tensors &outputs, TensorLists &inputs,
                                                  const c10d::ScatterOptions &opts) {
    return leave_contiguous(outputs, inputs,
                            [&](Tensors &taken, TensorLists &given) { return inner_->scatter(taken, given, opts); });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                                         const c10d::ReduceScatterOptions &opts) {
    count_left(Collective::kReduceScatter);
    return leave_contiguous(outputs, inputs, [&](Tensors &taken, TensorLists &given) {
        return inner_->reduce_scatter(taken, given, opts);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                               const c10d::ReduceScatterOptions &opts) {
    count_left(Collective::kReduceScatter);
    return leave_contiguous(output, input, [&](at::Tensor &taken, at::Tensor &given) {
        return inner_->_reduce_scatter_base(taken, given, opts);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                                          const c10d::ReduceScatterOptions &opts) {
    count_left(Collective::kReduceScatter);
    return leave_contiguous(outputs, inputs, [&](Tensors &taken, Tensors &given) {
        return inner_->reduce_scatter_tensor_coalesced(taken, given, opts);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                                        std::vector<int64_t> &output_split_sizes,
                                                        std::vector<int64_t> &input_split_sizes,
                                                        const c10d::AllToAllOptions &opts) {
    return leave_contiguous(output, input, [&](at::Tensor &taken, at::Tensor &given) {
        return inner_->alltoall_base(taken, given, output_split_sizes, input_split_sizes, opts);
    });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::alltoall(Tensors &outputs, Tensors &inputs,
                                                   const c10d::AllToAllOptions &opts) {
    return leave_contiguous(outputs, inputs,
                            [&](Tensors &taken, Tensors &given) { return inner_->alltoall(taken, given, opts); });
}

}  // namespace torch_switchml
