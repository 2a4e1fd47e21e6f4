// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLJobs.hpp"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>

namespace c10d {
namespace switchml_detail {

// One job of the library, which owns it until it calls back.
struct Jobs::Transfer {
    std::shared_ptr<Jobs> session;
    uint64_t numel;
    Dtype dtype;
    Done done;

    std::string failed(const std::string &reason) const {
        return "SwitchML allreduce of " + std::to_string(numel) + " " + kDtypes[static_cast<size_t>(dtype)] +
               " elements failed: " + reason;
    }
};

Jobs::Jobs(std::shared_ptr<Library> library, const switchml_config &resolved)
    : library_(std::move(library)),
      rank_(static_cast<int>(resolved.rank)),
      size_(static_cast<int>(resolved.num_workers)),
      controller_(resolved.controller != nullptr ? resolved.controller : ""),
      owner_(getpid()) {
    lastStats_.struct_size = sizeof(lastStats_);
}

Jobs::~Jobs() {
    try {
        close();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "SwitchML: closing the session: %s\n", error.what());
    }
}

void Jobs::connect(const switchml_config &config) {
    const switchml_status status = library_->open(&config, &context_);
    if (status != SWITCHML_OK) {
        context_ = nullptr;
        throw std::runtime_error("cannot open the SwitchML session: " +
                                 library_->explain(status, library_->lastError()));
    }
    thread_ = std::thread(&Jobs::work, this);
}

void Jobs::enqueue(std::function<void()> job) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (closing_ || owner_ != getpid()) {
            throw std::runtime_error(
                "SwitchML: the session of the process group is closed in this process; initialise the process group "
                "again");
        }
        jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
}

void Jobs::submit(void *data, uint64_t numel, Dtype dtype, Done done) {
    std::unique_ptr<Transfer> transfer(new Transfer{shared_from_this(), numel, dtype, std::move(done)});
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++busy_;
    }
    const std::string error = tryToSubmit(*transfer, data);
    if (error.empty()) {
        (void)transfer.release();  // the library's until onDone
    } else {
        finish(*transfer, error);
    }
}

std::string Jobs::tryToSubmit(Transfer &transfer, void *data) {
    const std::string before = failure();
    if (!before.empty()) {
        return "SwitchML: the session of the process group failed before (" + before +
               "); destroy the process group on all ranks and initialise it again";
    }
    static float nothing = 0;  // the library takes no null buffer, also for no elements
    void *const buffer = transfer.numel != 0 ? data : &nothing;
    const auto dtype = transfer.dtype == Dtype::kFloat32 ? SWITCHML_FLOAT32 : SWITCHML_INT32;
    const switchml_status status =
        library_->allreduceSubmit(context_, buffer, buffer, transfer.numel, dtype, &Jobs::onDone, &transfer);
    return status == SWITCHML_OK ? "" : transfer.failed(library_->explain(status, library_->lastError()));
}

void Jobs::onDone(void *user, switchml_status status, const char *message) {
    const std::unique_ptr<Transfer> transfer(static_cast<Transfer *>(user));
    Jobs &session = *transfer->session;
    std::string error;
    if (status != SWITCHML_OK) {
        const std::string reason = status == SWITCHML_EABORTED ? session.failure() : "";  // why it was aborted
        error = transfer->failed(reason.empty() ? session.library_->explain(status, message) : reason);
    }
    session.finish(*transfer, error);
}

void Jobs::finish(const Transfer &transfer, const std::string &error) {
    const auto index = static_cast<size_t>(transfer.dtype);
    if (error.empty()) {
        counters().jobs[index] += 1;
        counters().elements[index] += transfer.numel;
    } else {
        counters().failed += 1;
        setFailure(error);
    }
    transfer.done(error);
    const std::lock_guard<std::mutex> lock(mutex_);
    --busy_;
    changed_.notify_all();
}

void Jobs::work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
        if (jobs_.empty()) {
            return;
        }
        const auto job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
        lock.lock();
    }
}

void Jobs::abort() {
    if (owner_ != getpid()) {
        return;
    }
    const std::lock_guard<std::mutex> lock(contextMutex_);
    if (context_ != nullptr) {
        library_->abort(context_);
    }
}

void Jobs::fail(const std::string &reason) {
    setFailure(reason);
    abort();
}

void Jobs::close() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (std::exchange(closing_, true)) {
            return;
        }
    }
    if (!thread_.joinable()) {
        return;  // it never opened
    }
    if (owner_ != getpid()) {
        thread_.detach();  // it exists in the parent only
        return;
    }
    changed_.notify_all();
    thread_.join();
    end();
    if (onClosed_) {
        onClosed_();
    }
}

void Jobs::end() {
    {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return busy_ == 0; });
    }
    switchml_context *context = nullptr;
    {
        const std::lock_guard<std::mutex> lock(contextMutex_);
        library_->getStats(context_, &lastStats_);
        context = std::exchange(context_, nullptr);
    }
    library_->close(context);
}

void Jobs::setFailure(const std::string &reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) {
        failure_ = reason;
    }
}

std::string Jobs::failure() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
}

SessionReport Jobs::describe() const {
    return {rank_, size_, controller_, failure(), library_->describe(), library_->describe(stats())};
}

switchml_stats Jobs::stats() const {
    const std::lock_guard<std::mutex> lock(contextMutex_);
    switchml_stats result = lastStats_;
    if (context_ != nullptr) {
        library_->getStats(context_, &result);
    }
    return result;
}

}  // namespace switchml_detail
}  // namespace c10d
