// SPDX-License-Identifier: BSD-3-Clause
#include "work.h"

#include <algorithm>
#include <utility>

#include "counters.h"
#include "engine.h"
#include "library.h"

namespace torch_mpi {

namespace {

c10::intrusive_ptr<c10::ivalue::Future> make_future(const std::vector<at::Tensor> &outputs) {
    std::vector<c10::Device> devices;
    for (const at::Tensor &output : outputs) {
        if (!output.is_cpu() && std::find(devices.begin(), devices.end(), output.device()) == devices.end()) {
            devices.push_back(output.device());
        }
    }
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

}  // namespace

MpiWork::MpiWork(std::shared_ptr<Group> group, Operation operation)
    : Work(group->rank, operation.type, operation.title, std::optional<std::vector<at::Tensor>>(operation.inputs)),
      group_(std::move(group)),
      operation_(std::move(operation)),
      deadline_(Clock::now() + operation_.timeout),
      future_(make_future(operation_.outputs)) {}

bool Access::meets(const Access &other) const {
    return written.overlaps(other.written) || written.overlaps(other.read) || read.overlaps(other.written);
}

bool MpiWork::wait(std::chrono::milliseconds timeout) {
    Engine::get().wait(*this, timeout);
    return true;
}

std::vector<at::Tensor> MpiWork::result() {
    TORCH_CHECK(isCompleted(), "Work needs to be completed before calling result().");
    return operation_.outputs;
}

c10::intrusive_ptr<c10::ivalue::Future> MpiWork::getFuture() { return future_; }

int MpiWork::sourceRank() const { return source_; }

void MpiWork::abort() { Engine::get().fail(*group_, "a work of it was aborted"); }

std::string MpiWork::describe() const {
    std::string text = "MPI " + operation_.name;
    if (operation_.elements != 0) {
        text += " of " + std::to_string(operation_.elements) + " elements";
    }
    return text + " on rank " + std::to_string(group_->rank) + " of " + std::to_string(group_->size);
}

void MpiWork::read_statuses() {
    if (operation_.received_as == MPI_DATATYPE_NULL) {
        return;
    }
    const MPI_Status &status = statuses_.front();
    MPI_Count received = 0;
    source_ = status.MPI_SOURCE;
    if (MPI_Get_elements_x(&status, operation_.received_as, &received) != MPI_SUCCESS ||
        static_cast<uint64_t>(received) != operation_.elements) {
        error_ = backend_error(describe() + " got " + std::to_string(received) + " elements from rank " +
                               std::to_string(source_));
    }
}

void MpiWork::complete() noexcept {
    try {
        if (!error_ && operation_.finish) {
            operation_.finish();
        }
    } catch (...) {
        error_ = std::current_exception();
    }
    Engine::get().settle(*group_, operation_.access);  // before callbacks, which may ask for more of it
    Counters::get().add(operation_.name, operation_.elements, operation_.bytes, error_ != nullptr);
    try {
        end_profile();
        if (error_) {
            future_->setError(error_);
        } else {
            future_->markCompleted(c10::IValue(operation_.outputs));
        }
    } catch (...) {
        error_ = std::current_exception();
        future_->setErrorIfNeeded(error_);
    }
    operation_.start = nullptr;  // what they hold is needed no more
    operation_.finish = nullptr;
    requests_ = {};
    before_.clear();
    finish(error_);
}

// Whoever waits for the future, as DistributedDataParallel does, may stop the profiler as soon as that is complete: its
// event must have ended before. Work::finish() would end it after.
void MpiWork::end_profile() {
    const auto end = std::exchange(recordFunctionEndCallback_, nullptr);
    if (end) {
        end();
    }
}

SeveralWorks::SeveralWorks(std::vector<c10::intrusive_ptr<MpiWork>> works)
    : Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool SeveralWorks::isCompleted() {
    return std::all_of(works_.begin(), works_.end(), [](const auto &work) { return work->isCompleted(); });
}

bool SeveralWorks::isSuccess() const { return exception() == nullptr; }

std::exception_ptr SeveralWorks::exception() const {
    for (const auto &work : works_) {
        if (auto error = work->exception()) {
            return error;
        }
    }
    return nullptr;
}

bool SeveralWorks::wait(std::chrono::milliseconds timeout) {
    for (const auto &work : works_) {
        work->wait(timeout);
    }
    return true;
}

std::vector<at::Tensor> SeveralWorks::result() {
    std::vector<at::Tensor> all;
    for (const auto &work : works_) {
        const auto one = work->result();
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

c10::intrusive_ptr<c10::ivalue::Future> SeveralWorks::getFuture() {
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> all(
        c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
    for (const auto &work : works_) {
        all.push_back(work->getFuture());
    }
    const auto works = works_;
    return c10::collectAll(all)->then(
        [works](c10::ivalue::Future &done) {
            if (done.hasError()) {
                std::rethrow_exception(done.exception_ptr());
            }
            std::vector<at::Tensor> outputs;
            for (const auto &work : works) {
                const auto one = work->getFuture()->value().toTensorVector();
                outputs.insert(outputs.end(), one.begin(), one.end());
            }
            return c10::IValue(outputs);
        },
        c10::ListType::create(c10::TensorType::get()));
}

}  // namespace torch_mpi
