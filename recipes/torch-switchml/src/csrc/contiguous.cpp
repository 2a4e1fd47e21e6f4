// SPDX-License-Identifier: BSD-3-Clause
#include "contiguous.h"

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "job.h"

namespace torch_switchml {

namespace {

bool is_taken_as_it_is(const at::Tensor &tensor) { return tensor.layout() != at::kStrided || tensor.is_contiguous(); }

// What is to follow the end of a call: once, on whichever thread comes first.
class WriteBack {
  public:
    explicit WriteBack(std::function<void()> write) : write_(std::move(write)) {}

    void run() {
        std::call_once(once_, [this] { write_(); });
    }

  private:
    std::function<void()> write_;
    std::once_flag once_;
};

c10::IValue as_value(const std::vector<std::vector<at::Tensor>> &results) {
    if (results.size() > 1) {
        return results;
    }
    return results.empty() ? std::vector<at::Tensor>() : results.front();
}

std::vector<c10::Device> devices_in(const std::vector<std::vector<at::Tensor>> &results) {
    for (const auto &list : results) {
        for (const at::Tensor &tensor : list) {
            if (!tensor.is_cpu()) {
                return {tensor.device()};
            }
        }
    }
    return {};
}

template <typename Item, typename Call>
std::vector<Item> each(const std::vector<Item> &items, Call call) {
    std::vector<Item> found;
    found.reserve(items.size());
    for (const Item &item : items) {
        found.push_back(call(item));
    }
    return found;
}

// A call's work, whose end is that of the writing back. Some works of gloo have
// no future: they write their results in wait() alone, and so does this one then.
class CopyingWork : public c10d::Work {
  public:
    CopyingWork(c10::intrusive_ptr<c10d::Work> inner, std::function<void()> write,
                std::vector<std::vector<at::Tensor>> results)
        : Work(-1, inner->retrieveOpType()),
          inner_(std::move(inner)),
          write_back_(std::make_shared<WriteBack>(std::move(write))),
          results_(std::move(results)) {
        c10::intrusive_ptr<c10::ivalue::Future> before;
        try {
            before = inner_->getFuture();
        } catch (const c10::Error &) {
            return;
        }
        future_ = c10::make_intrusive<c10::ivalue::Future>(before->elementType(), devices_in(results_));
        // gloo's thread runs it before it ends the work: nobody's wait() returns in between
        before->addCallback(
            [future = future_, write_back = write_back_, value = as_value(results_)](c10::ivalue::Future &done) {
                try {
                    if (done.hasError()) {
                        std::rethrow_exception(done.exception_ptr());
                    }
                    write_back->run();
                    future->markCompleted(value);
                } catch (...) {
                    future->setErrorIfNeeded(std::current_exception());
                }
            });
    }

    bool isCompleted() override { return inner_->isCompleted() && (!future_ || future_->completed()); }

    bool isSuccess() const override { return exception() == nullptr; }

    std::exception_ptr exception() const override {
        if (auto error = inner_->exception()) {
            return error;
        }
        return future_ && future_->completed() && future_->hasError() ? future_->exception_ptr() : nullptr;
    }

    bool wait(std::chrono::milliseconds timeout) override {
        const bool ended = inner_->wait(timeout);
        if (future_) {
            future_->waitAndThrow();
        } else {
            write_back_->run();
        }
        return ended;
    }

    std::vector<at::Tensor> result() override {
        if (results_.size() > 1) {
            return inner_->result();  // which says that it has none for lists of lists
        }
        TORCH_CHECK(isCompleted(), "Work needs to be completed before calling result().");
        return results_.empty() ? std::vector<at::Tensor>() : results_.front();
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_ ? future_ : inner_->getFuture(); }

    uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

    void synchronize() override { inner_->synchronize(); }

    void abort() override { inner_->abort(); }

  private:
    const c10::intrusive_ptr<c10d::Work> inner_;
    const std::shared_ptr<WriteBack> write_back_;
    const std::vector<std::vector<at::Tensor>> results_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace

at::Tensor ContiguousCopies::copy_of(const at::Tensor &tensor) {
    const at::AutoDispatchBelowADInplaceOrView below;
    has_copied_ = true;
    return tensor.clone(at::MemoryFormat::Contiguous);
}

at::Tensor ContiguousCopies::read(const at::Tensor &tensor) {
    return is_taken_as_it_is(tensor) ? tensor : copy_of(tensor);
}

at::Tensor ContiguousCopies::written(const at::Tensor &tensor) {
    if (is_taken_as_it_is(tensor)) {
        return tensor;
    }
    at::Tensor copy = copy_of(tensor);
    to_write_back_.push_back({share(tensor), copy});
    return copy;
}

ContiguousCopies::Tensors ContiguousCopies::read(const Tensors &tensors) {
    return each(tensors, [this](const at::Tensor &tensor) { return read(tensor); });
}

ContiguousCopies::Tensors ContiguousCopies::written(const Tensors &tensors) {
    return each(tensors, [this](const at::Tensor &tensor) { return written(tensor); });
}

ContiguousCopies::TensorLists ContiguousCopies::read(const TensorLists &lists) {
    return each(lists, [this](const Tensors &list) { return read(list); });
}

ContiguousCopies::TensorLists ContiguousCopies::written(const TensorLists &lists) {
    return each(lists, [this](const Tensors &list) { return written(list); });
}

ContiguousCopies::WorkPtr ContiguousCopies::hand_back(WorkPtr work, TensorLists results) {
    if (!has_copied_) {
        return work;
    }
    // Below autograd, as a session writes its sums. What a device still copies is waited for: the thread's own stream
    // is none that a caller would wait for.
    const auto write = [pairs = std::move(to_write_back_)] {
        const at::AutoDispatchBelowADInplaceOrView below;
        for (const auto &[target, copy] : pairs) {
            target.copy_(copy);
            if (!target.is_cpu()) {
                c10::impl::VirtualGuardImpl(target.device().type()).getStream(target.device()).synchronize();
            }
        }
    };
    return c10::make_intrusive<CopyingWork>(std::move(work), write, std::move(results));
}

}  // namespace torch_switchml
