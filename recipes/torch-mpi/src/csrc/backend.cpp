// SPDX-License-Identifier: BSD-3-Clause
#include "backend.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/debug.h>

#include "buffer.h"
#include "elements.h"
#include "engine.h"
#include "gil.h"
#include "library.h"

namespace torch_mpi {

namespace {

// What a thread makes while another waits for it, for MPI's call blocks.
struct Making {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    std::exception_ptr error;
    MPI_Comm comm = MPI_COMM_NULL;
};

// The same for the same ranks, so that several threads may make groups at a time.
int tag_of(const std::vector<int> &ranks) {
    uint32_t hash = 2166136261U;
    for (const int rank : ranks) {
        hash = (hash ^ static_cast<uint32_t>(rank)) * 16777619U;
    }
    return static_cast<int>(hash & 0x7fffU);  // MPI allows no less
}

// Looks how many ranks share this machine, and its cores.
void count_neighbours() {
    MPI_Comm neighbours = MPI_COMM_NULL;
    int ranks = 1;
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours),
          "MPI_Comm_split_type");
    check(MPI_Comm_size(neighbours, &ranks), "MPI_Comm_size");
    check(MPI_Comm_free(&neighbours), "MPI_Comm_free");
    cpu_set_t cores;
    CPU_ZERO(&cores);
    Backoff::set_crowded(sched_getaffinity(0, sizeof(cores), &cores) != 0 || ranks > CPU_COUNT(&cores));
}

// Whether every rank has to bring as many elements as the others.
bool is_even(c10d::OpType type) {
    switch (type) {
        case c10d::OpType::ALLREDUCE:
        case c10d::OpType::ALLREDUCE_COALESCED:
        case c10d::OpType::REDUCE:
        case c10d::OpType::BROADCAST:
        case c10d::OpType::GATHER:
        case c10d::OpType::_ALLGATHER_BASE:
        case c10d::OpType::REDUCE_SCATTER:
        case c10d::OpType::_REDUCE_SCATTER_BASE: return true;
        default: return false;
    }
}

// What has to be the same on all ranks.
std::vector<int64_t> facts_of(const Operation &operation) {
    const bool is_compared = is_even(operation.type) && !operation.inputs.empty();
    return {static_cast<int64_t>(operation.type),
            is_compared ? static_cast<int64_t>(operation.inputs.front().scalar_type()) : -1,
            is_compared ? static_cast<int64_t>(operation.elements) : -1};
}

// Of the groups of this process, which the error says that there are too many of.
std::atomic<int> num_groups{0};

void check_made(int code, const char *call) {
    if (code != MPI_SUCCESS && error_text(code).find("Too many communicators") != std::string::npos) {
        throw_backend_error("MPI takes no further group: this process has " + std::to_string(num_groups) +
                            " over MPI, and MPICH knows 2048 at a time, with some of its own; destroy groups that are "
                            "not used any more (torch.distributed.destroy_process_group)");
    }
    check(code, call);
}

MPI_Comm make_comm(const std::vector<int> &ranks) {
    MPI_Comm comm = MPI_COMM_NULL;
    if (ranks.empty()) {
        check_made(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
        count_neighbours();
    } else {
        MPI_Group world = MPI_GROUP_NULL;
        MPI_Group members = MPI_GROUP_NULL;
        check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
        check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &members), "MPI_Group_incl");
        const int code = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag_of(ranks), &comm);
        MPI_Group_free(&members);
        MPI_Group_free(&world);
        check_made(code, "MPI_Comm_create_group");
    }
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return comm;
}

void make_on_thread(const std::shared_ptr<Making> &making, const std::vector<int> &ranks) {
    MPI_Comm comm = MPI_COMM_NULL;
    std::exception_ptr error;
    try {
        if (start_library().thread_level == MPI_THREAD_MULTIPLE) {
            comm = make_comm(ranks);  // works of other groups go on meanwhile
        } else {
            Engine::get().with_lock([&] { comm = make_comm(ranks); });
        }
    } catch (...) {
        error = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(making->mutex);
    making->comm = comm;
    making->error = error;
    making->is_done = true;
    making->changed.notify_all();
}

// Waits for the other members, and hears Ctrl-C meanwhile.
MPI_Comm make_comm_within(const std::vector<int> &ranks, std::chrono::milliseconds timeout) {
    const auto until = Clock::now() + timeout;
    const auto making = std::make_shared<Making>();
    std::thread(make_on_thread, making, ranks).detach();
    std::unique_lock<std::mutex> lock(making->mutex);
    while (!making->changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return making->is_done; })) {
        lock.unlock();
        try {
            check_python_signals();
            if (Clock::now() >= until) {
                throw_backend_error("not all ranks of the group came to make it within " + seconds_in_words(timeout));
            }
        } catch (...) {
            Engine::get().lose(making);
            throw;
        }
        lock.lock();
    }
    if (making->error) {
        std::rethrow_exception(making->error);
    }
    return making->comm;
}

}  // namespace

c10::intrusive_ptr<MpiBackend> MpiBackend::create(const std::vector<int> &ranks, std::chrono::milliseconds timeout) {
    require_library();
    auto group = std::make_shared<Group>();
    group->comm = make_comm_within(ranks, timeout);
    Engine::get().with_lock([&] {
        check(MPI_Comm_rank(group->comm, &group->rank), "MPI_Comm_rank");
        check(MPI_Comm_size(group->comm, &group->size), "MPI_Comm_size");
    });
    return c10::make_intrusive<MpiBackend>(std::move(group), timeout);
}

MpiBackend::MpiBackend(std::shared_ptr<Group> group, std::chrono::milliseconds timeout)
    : Backend(group->rank, group->size), group_(std::move(group)), timeout_(timeout) {
    ++num_groups;
}

MpiBackend::~MpiBackend() {
    --num_groups;
    if (!library_usable()) {
        return;
    }
    const GilReleased released;
    Engine::get().close(group_);
    Engine::get().with_lock([this] {
        if (!group_->has_lost) {
            MPI_Comm_free(&group_->comm);
        }
    });
}

Operation MpiBackend::make_operation(c10d::OpType type, const char *title, Tensors inputs, Tensors outputs,
                                     CallOptions opts) const {
    Operation operation;
    operation.type = type;
    operation.title = title;
    operation.name = std::string(title).substr(sizeof("mpi:") - 1);
    for (const at::Tensor &tensor : inputs.empty() ? outputs : inputs) {
        operation.elements += static_cast<uint64_t>(tensor.numel());
        operation.bytes += tensor.numel() * tensor.element_size();
    }
    operation.inputs = std::move(inputs);
    operation.outputs = std::move(outputs);
    operation.timeout = opts.timeout == c10d::kUnsetTimeout ? timeout_ : opts.timeout;
    operation.is_waited_for = opts.is_waited_for && !is_coalescing_;
    if (!operation.is_message()) {
        operation.access = std::make_shared<const Access>(Access{Memory(operation.inputs), Memory(operation.outputs)});
        Engine::get().await_settled(*group_, *operation.access);
    }
    return operation;
}

MpiBackend::WorkPtr MpiBackend::start(Operation operation) {
    if (c10d::debug_level() == c10d::DebugLevel::Detail && !operation.is_message()) {
        compare_ranks(operation);
    }
    operation.group_name = getGroupUid();
    auto work = Engine::get().start(group_, std::move(operation));
    ++calls_;
    if (is_coalescing_) {
        coalesced_.push_back(work);
    }
    return work;
}

void MpiBackend::compare_ranks(const Operation &operation) const {
    const GilReleased released;
    const std::vector<int64_t> own = facts_of(operation);
    const auto facts = static_cast<int64_t>(own.size());
    const at::Tensor extremes = at::tensor(own, at::kLong).repeat({2});
    extremes.narrow(0, facts, facts).neg_();  // the largest of these is the smallest of those
    Operation comparison;
    comparison.title = "mpi:compare_ranks";
    comparison.name = "compare_ranks";
    comparison.timeout = operation.timeout;
    comparison.is_waited_for = true;
    comparison.start = [extremes, comm = group_->comm](Requests &requests) {
        torch_mpi::allreduce(extremes.data_ptr(), extremes.numel(), MPI_INT64_T, MPI_MAX, comm, requests);
    };
    Engine::get().start(group_, std::move(comparison))->wait(operation.timeout);
    const int64_t *const largest = extremes.const_data_ptr<int64_t>();
    for (int64_t fact = 0; fact < facts; ++fact) {
        if (largest[fact] != -largest[facts + fact]) {
            throw_backend_error("the ranks of the group do not make the same call: this one makes " + operation.name +
                                " of " + std::to_string(operation.elements) +
                                " elements, another one another operation, or one of another type or number");
        }
    }
}

MpiBackend::WorkPtr MpiBackend::barrier(const c10d::BarrierOptions &opts) {
    Operation operation = make_operation(c10d::OpType::BARRIER, "mpi:barrier", {}, {}, opts);
    operation.is_barrier = true;
    operation.start = [comm = group_->comm](Requests &requests) {
        check(MPI_Ibarrier(comm, requests.add()), "MPI_Ibarrier");
    };
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::send(Tensors &tensors, int destination, int tag) {
    const at::Tensor &tensor = only(tensors);
    Operation operation = make_operation(c10d::OpType::SEND, "mpi:send", {tensor}, {});
    operation.start = [buffer = Buffer::input(tensor), type = moved_as(tensor), destination, tag,
                       comm = group_->comm](Requests &requests) {
        torch_mpi::send(buffer.data(), buffer.numel(), type, destination, tag, comm, requests);
    };
    return start(std::move(operation));
}

MpiBackend::WorkPtr MpiBackend::recv(Tensors &tensors, int source, int tag) {
    return start_receipt(tensors, source, tag, c10d::OpType::RECV);
}

MpiBackend::WorkPtr MpiBackend::recvAnysource(Tensors &tensors, int tag) {
    return start_receipt(tensors, MPI_ANY_SOURCE, tag, c10d::OpType::RECVANYSOURCE);
}

MpiBackend::WorkPtr MpiBackend::start_receipt(Tensors &tensors, int source, int tag, c10d::OpType type) {
    const at::Tensor &tensor = only(tensors);
    const bool is_from_any = type == c10d::OpType::RECVANYSOURCE;
    Operation operation = make_operation(type, is_from_any ? "mpi:recvAnySource" : "mpi:recv", {tensor}, {tensor});
    operation.name = "recv";
    operation.received_as = moved_as(tensor);
    const Buffer buffer = Buffer::output(tensor);
    operation.start = [buffer, words = operation.received_as, source, tag, comm = group_->comm](Requests &requests) {
        receive(buffer.data(), buffer.numel(), words, source, tag, comm, requests);
    };
    operation.finish = [buffer] { buffer.copy_back(); };
    return start(std::move(operation));
}

void MpiBackend::startCoalescing() { is_coalescing_ = true; }

MpiBackend::WorkPtr MpiBackend::endCoalescing() {
    is_coalescing_ = false;
    return c10::make_intrusive<SeveralWorks>(std::exchange(coalesced_, {}));
}

#if TORCH_MPI_SINCE(7)
void MpiBackend::abort() { Engine::get().fail(*group_, "it was aborted"); }

void MpiBackend::shutdown() {
    const GilReleased released;
    Engine::get().close(group_);
}

c10d::ErrorType MpiBackend::getError() {
    return Engine::get().failure(*group_) ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}
#endif

#if TORCH_MPI_SINCE(9)
c10::intrusive_ptr<c10d::Backend::Options> MpiBackend::getBackendOptions() {
    return c10::make_intrusive<Options>("mpi", timeout_);
}
#endif

const at::Tensor &only(const std::vector<at::Tensor> &tensors) {
    TORCH_CHECK_VALUE(tensors.size() == 1, "torch-mpi: one tensor a call, got ", tensors.size());
    return tensors.front();
}

}  // namespace torch_mpi
