// SPDX-License-Identifier: BSD-3-Clause
//
// The collectives that only move: broadcast, gathers, scatter, all_to_all. They
// take every element type.
#include <algorithm>
#include <optional>
#include <utility>

#include "backend.h"
#include "buffer.h"
#include "elements.h"

namespace torch_mpi {

namespace {

using Tensors = std::vector<at::Tensor>;

// Lists whose memory MPI sees as one.
struct Flat {
    at::Tensor memory;
    Parts parts;
    Tensors tensors;

    void *data() const { return memory.data_ptr(); }

    bool is_even() const {
        return std::all_of(parts.counts.begin(), parts.counts.end(),
                           [this](int64_t count) { return count == parts.counts.front(); });
    }

    // Brings what MPI wrote into the tensors.
    void copy_back() const {
        for (size_t index = 0; index < tensors.size(); ++index) {
            copy_into(tensors[index],
                      memory.narrow(0, parts.starts[index], parts.counts[index]).view(tensors[index].sizes()));
        }
    }
};

Flat flat_outputs(const Tensors &tensors, at::ScalarType type) {
    std::vector<int64_t> counts;
    check_type(tensors, type);
    for (const at::Tensor &tensor : tensors) {
        counts.push_back(tensor.numel());
    }
    Parts parts = Parts::of(std::move(counts));
    at::Tensor memory = Buffer::scratch(tensors.front(), parts.total());
    return {std::move(memory), std::move(parts), tensors};
}

struct Gathered {
    Buffer input;
    Buffer output;
    MPI_Datatype type;
};

Gathered prepare_gathered(const at::Tensor &output, const at::Tensor &input, int size) {
    TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type() && output.numel() == input.numel() * size,
                      "torch-mpi: all_gather of ", input.numel(), " ", input.scalar_type(), " elements of ", size,
                      " ranks does not fill ", output.numel(), " ", output.scalar_type(), " elements");
    Gathered one{Buffer::input(input), Buffer::output(output), moved_as(input)};
    if (one.input.overlaps(one.output)) {  // sharded models gather into what holds their own part
        one.input.separate();
    }
    return one;
}

void gather_all(Operation &operation, std::vector<Gathered> all, MPI_Comm comm) {
    operation.start = [all, comm](Requests &requests) {
        for (const auto &[input, output, type] : all) {
            allgather(input.data(), input.numel(), output.data(), type, comm, requests);
        }
    };
    operation.finish = [all = std::move(all)] {
        for (const auto &one : all) {
            one.output.copy_back();
        }
    };
}

// One rank's part and where the parts of all come, for tensors that may differ in size.
struct GatheredList {
    Buffer input;
    Flat output;
    MPI_Datatype type;
};

GatheredList prepare_gathered_list(const Tensors &outputs, const at::Tensor &input, int rank) {
    Flat flat = flat_outputs(outputs, input.scalar_type());
    TORCH_CHECK_VALUE(flat.parts.counts[rank] == input.numel(), "torch-mpi: all_gather of ", input.numel(),
                      " elements into ", flat.parts.counts[rank]);
    return {Buffer::input(input), std::move(flat), moved_as(input)};
}

void gather_lists(Operation &operation, std::vector<GatheredList> all, MPI_Comm comm) {
    operation.start = [all, comm](Requests &requests) {
        for (const auto &[input, output, type] : all) {
            if (output.is_even()) {
                allgather(input.data(), input.numel(), output.data(), type, comm, requests);
            } else {
                allgatherv(input.data(), input.numel(), output.data(), output.parts, type, comm, requests);
            }
        }
    };
    operation.finish = [all = std::move(all)] {
        for (const auto &one : all) {
            one.output.copy_back();
        }
    };
}

// Lengths of all_to_all_single's parts along the first dimension, in elements.
Parts split_rows(const at::Tensor &tensor, const std::vector<int64_t> &sizes, int ranks) {
    const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    std::vector<int64_t> counts = sizes;
    if (counts.empty()) {
        TORCH_CHECK_VALUE(rows % ranks == 0, "torch-mpi: all_to_all_single: ", rows,
                          " rows cannot be split evenly over ", ranks, " ranks");
        counts.assign(static_cast<size_t>(ranks), rows / ranks);
    }
    const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
    int64_t total = 0;
    for (int64_t &count : counts) {
        total += count;
        count *= row;
    }
    TORCH_CHECK_VALUE(static_cast<int>(counts.size()) == ranks && total == rows,
                      "torch-mpi: all_to_all_single: ", counts.size(), " parts of ", total, " rows for ", ranks,
                      " ranks and ", rows, " rows");
    return Parts::of(std::move(counts));
}

}  // namespace

const Tensors &only_list(const std::vector<Tensors> &lists, int size) {
    TORCH_CHECK_VALUE(lists.size() == 1 && static_cast<int>(lists.front().size()) == size,
                      "torch-mpi: one list with a tensor for each of ", size, " ranks, got ",
                      lists.empty() ? 0 : lists.front().size());
    return lists.front();
}

void check_type(const Tensors &tensors, at::ScalarType type) {
    for (const at::Tensor &tensor : tensors) {
        TORCH_CHECK_VALUE(tensor.scalar_type() == type, "torch-mpi: tensors of one type, got ", tensor.scalar_type(),
                          " and ", type);
    }
}

at::Tensor concatenated(const Tensors &tensors) {
    const at::NoGradGuard no_grad;
    Tensors flat;
    flat.reserve(tensors.size());
    for (const at::Tensor &tensor : tensors) {
        flat.push_back(tensor.reshape({-1}));
    }
    return at::cat(flat);
}

MpiBackend::WorkPtr MpiBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) {
    const at::Tensor &tensor = only(tensors);
    const int root = static_cast<int>(opts.rootRank);
    Operation operation = make_operation(c10d::OpType::BROADCAST, "mpi:broadcast", tensors, tensors, opts);
    const Buffer buffer = root == rank_ ? Buffer::input(tensor) : Buffer::output(tensor);
    operation.start = [buffer, type = moved_as(tensor), root, comm = group_->comm](Requests &requests) {
        torch_mpi::broadcast(buffer.data(), buffer.numel(), type, root, comm, requests);
    };
    if (root != rank_) {
        operation.finish = [buffer] { buffer.copy_back(); };
    }
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts) {
    const at::Tensor &tensor = only(inputs);
    const Tensors &list = only_list(outputs, size_);
    Operation operation = make_operation(c10d::OpType::ALLGATHER, "mpi:all_gather", inputs, list, opts);
    gather_lists(operation, {prepare_gathered_list(list, tensor, rank_)}, group_->comm);
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                const c10d::AllgatherOptions &opts) {
    Operation operation = make_operation(c10d::OpType::_ALLGATHER_BASE, "mpi:all_gather", {input}, {output}, opts);
    gather_all(operation, {prepare_gathered(output, input, size_)}, group_->comm);
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                                const c10d::AllgatherOptions &opts) {
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "torch-mpi: as many outputs as inputs, got ", outputs.size(),
                      " and ", inputs.size());
    Operation operation = make_operation(c10d::OpType::COALESCED, "mpi:all_gather_coalesced", inputs, outputs, opts);
    std::vector<Gathered> all;
    for (size_t index = 0; index < inputs.size(); ++index) {
        all.push_back(prepare_gathered(outputs[index], inputs[index], size_));
    }
    separate_outputs(all);
    gather_all(operation, std::move(all), group_->comm);
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                                    const c10d::AllgatherOptions &opts) {
    TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == size_, "torch-mpi: a list for each of ", size_,
                      " ranks, got ", outputs.size());
    Tensors written;
    for (const Tensors &of_rank : outputs) {
        TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "torch-mpi: as many outputs of each rank as inputs, got ",
                          of_rank.size(), " and ", inputs.size());
        written.insert(written.end(), of_rank.begin(), of_rank.end());
    }
    Operation operation =
        make_operation(c10d::OpType::COALESCED, "mpi:all_gather_coalesced", inputs, std::move(written), opts);
    std::vector<GatheredList> all;
    for (size_t index = 0; index < inputs.size(); ++index) {
        Tensors of_input;
        for (const Tensors &of_rank : outputs) {
            of_input.push_back(of_rank[index]);
        }
        all.push_back(prepare_gathered_list(of_input, inputs[index], rank_));
    }
    gather_lists(operation, std::move(all), group_->comm);
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &opts) {
    const at::Tensor &tensor = only(inputs);
    const int root = static_cast<int>(opts.rootRank);
    Flat flat;
    if (root == rank_) {
        flat = flat_outputs(only_list(outputs, size_), tensor.scalar_type());
        TORCH_CHECK_VALUE(flat.is_even() && flat.parts.counts.front() == tensor.numel(),
                          "torch-mpi: gather takes tensors of one size");
    }
    Operation operation = make_operation(c10d::OpType::GATHER, "mpi:gather", inputs, flat.tensors, opts);
    const Buffer input = Buffer::input(tensor);
    operation.start = [input, flat, type = moved_as(tensor), root, comm = group_->comm](Requests &requests) {
        void *const output = flat.memory.defined() ? flat.data() : nullptr;
        torch_mpi::gather(input.data(), input.numel(), output, type, root, comm, requests);
    };
    operation.finish = [flat] { flat.copy_back(); };
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &opts) {
    const at::Tensor &tensor = only(outputs);
    const int root = static_cast<int>(opts.rootRank);
    if (root == rank_) {
        const Tensors &parts = only_list(inputs, size_);
        TORCH_CHECK_VALUE(std::all_of(parts.begin(), parts.end(),
                                      [&](const at::Tensor &part) {
                                          return part.numel() == tensor.numel() &&
                                                 part.scalar_type() == tensor.scalar_type();
                                      }),
                          "torch-mpi: scatter takes tensors of one size and type");
    }
    Operation operation =
        make_operation(c10d::OpType::SCATTER, "mpi:scatter", root == rank_ ? inputs.front() : Tensors(), outputs, opts);
    const Buffer output = Buffer::output(tensor);
    std::optional<Buffer> input;
    if (root == rank_) {
        input = Buffer::input(concatenated(inputs.front()));
    }
    operation.start = [input, output, type = moved_as(tensor), root, comm = group_->comm](Requests &requests) {
        torch_mpi::scatter(input ? input->data() : nullptr, output.numel(), output.data(), type, root, comm, requests);
    };
    operation.finish = [output] { output.copy_back(); };
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                              std::vector<int64_t> &output_split_sizes,
                                              std::vector<int64_t> &input_split_sizes,
                                              const c10d::AllToAllOptions &opts) {
    TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(), "torch-mpi: tensors of one type, got ",
                      input.scalar_type(), " and ", output.scalar_type());
    const Parts sent = split_rows(input, input_split_sizes, size_);
    const Parts received = split_rows(output, output_split_sizes, size_);
    const bool is_even = input_split_sizes.empty() && output_split_sizes.empty();
    TORCH_CHECK_VALUE(!is_even || input.numel() == output.numel(), "torch-mpi: all_to_all_single of ", input.numel(),
                      " elements into ", output.numel(), ": without split sizes tensors have one size");
    Operation operation = make_operation(c10d::OpType::ALLTOALL_BASE, "mpi:all_to_all", {input}, {output}, opts);
    Buffer from = Buffer::input(input);
    const Buffer into = Buffer::output(output);
    if (from.overlaps(into)) {
        from.separate();
    }
    operation.start = [from, into, sent, received, is_even, type = moved_as(input),
                       comm = group_->comm](Requests &requests) {
        if (is_even) {
            torch_mpi::alltoall(from.data(), sent.counts.front(), into.data(), type, comm, requests);
        } else {
            alltoallv(from.data(), sent, into.data(), received, type, comm, requests);
        }
    };
    operation.finish = [into] { into.copy_back(); };
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) {
    TORCH_CHECK_VALUE(static_cast<int>(inputs.size()) == size_ && static_cast<int>(outputs.size()) == size_,
                      "torch-mpi: all_to_all takes a tensor for each of ", size_, " ranks");
    const at::ScalarType type = inputs.front().scalar_type();
    const Flat into = flat_outputs(outputs, type);
    check_type(inputs, type);
    std::vector<int64_t> counts;
    for (const at::Tensor &tensor : inputs) {
        counts.push_back(tensor.numel());
    }
    const Parts sent = Parts::of(std::move(counts));
    Operation operation = make_operation(c10d::OpType::ALLTOALL, "mpi:all_to_all", inputs, outputs, opts);
    const Buffer from = Buffer::input(concatenated(inputs));
    operation.start = [from, into, sent, words = moved_as(inputs.front()), comm = group_->comm](Requests &requests) {
        alltoallv(from.data(), sent, into.data(), into.parts, words, comm, requests);
    };
    operation.finish = [into] { into.copy_back(); };
    return start(std::move(operation));
}

}  // namespace torch_mpi
