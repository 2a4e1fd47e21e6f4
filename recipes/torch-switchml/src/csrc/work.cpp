// SPDX-License-Identifier: BSD-3-Clause
#include "work.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace torch_switchml {

namespace {

// The type gloo's works use: DDP and users' hooks read the first tensor.
c10::intrusive_ptr<c10::ivalue::Future> make_future(c10::Device device) {
    std::vector<c10::Device> devices;
    if (!device.is_cpu()) {
        devices.push_back(device);
    }
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

}  // namespace

DelegatedWork::DelegatedWork(int rank, std::vector<at::Tensor> tensors, uint64_t sequence_number, const char *title)
    : Work(rank, c10d::OpType::ALLREDUCE, title, std::optional<std::vector<at::Tensor>>(tensors)),
      tensors_(std::move(tensors)),
      sequence_number_(sequence_number),
      future_(make_future(tensors_.front().device())) {}

std::vector<at::Tensor> DelegatedWork::result() {
    TORCH_CHECK(isCompleted(), "Work needs to be completed before calling result().");
    return tensors_;
}

c10::intrusive_ptr<c10::ivalue::Future> DelegatedWork::getFuture() { return future_; }

void DelegatedWork::synchronize() {
    future_->wait();  // complete by now: this is about streams
}

uint64_t DelegatedWork::getSequencenumber() const { return sequence_number_; }

// Whoever waits for the future, as DistributedDataParallel does, may stop the profiler as soon as that is complete: its
// event must have ended before. Work::finish() would end it after.
void DelegatedWork::end_profile() {
    const auto end = std::exchange(recordFunctionEndCallback_, nullptr);
    if (end) {
        end();
    }
}

void DelegatedWork::complete(std::exception_ptr error) noexcept {
    try {
        end_profile();
        if (error) {
            future_->setError(error);
        } else {
            future_->markCompleted(c10::IValue(tensors_));
        }
    } catch (...) {
        error = std::current_exception();
        future_->setErrorIfNeeded(error);
    }
    finish(std::move(error));
}

BarrierWork::BarrierWork(int rank, c10::intrusive_ptr<c10d::Work> barrier,
                         std::vector<c10::intrusive_ptr<c10d::Work>> before)
    : Work(rank, c10d::OpType::BARRIER), barrier_(std::move(barrier)), before_(std::move(before)) {}

bool BarrierWork::isCompleted() {
    return barrier_->isCompleted() &&
           std::all_of(before_.begin(), before_.end(), [](const auto &work) { return work->isCompleted(); });
}

bool BarrierWork::isSuccess() const { return exception() == nullptr; }

std::exception_ptr BarrierWork::exception() const {
    if (auto error = barrier_->exception()) {
        return error;
    }
    for (const auto &work : before_) {
        if (auto error = work->exception()) {
            return error;
        }
    }
    return nullptr;
}

bool BarrierWork::wait(std::chrono::milliseconds timeout) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + timeout;
    const auto left = [&]() -> std::chrono::milliseconds {
        if (timeout == kNoTimeout) {
            return kNoTimeout;
        }
        const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        return std::max(rest, std::chrono::milliseconds(1));  // 0 would mean without limit
    };
    for (const auto &work : before_) {
        work->wait(left());
    }
    return barrier_->wait(left());
}

std::vector<at::Tensor> BarrierWork::result() {
    TORCH_CHECK(isCompleted(), "Work needs to be completed before calling result().");
    return barrier_->result();
}

c10::intrusive_ptr<c10::ivalue::Future> BarrierWork::getFuture() {
    const auto barrier = barrier_->getFuture();
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> all(c10::FutureType::create(barrier->elementType()));
    all.push_back(barrier);
    for (const auto &work : before_) {
        all.push_back(work->getFuture());
    }
    return c10::collectAll(all)->then(
        [barrier](c10::ivalue::Future &done) {
            if (done.hasError()) {
                std::rethrow_exception(done.exception_ptr());
            }
            return barrier->value();
        },
        barrier->elementType());
}

uint64_t BarrierWork::getSequencenumber() const { return barrier_->getSequencenumber(); }

}  // namespace torch_switchml
