// SPDX-License-Identifier: BSD-3-Clause
#include "wire.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <stdexcept>
#include <thread>
#include <utility>

namespace torch_switchml {

namespace {

// Python's signals are looked for this often while the library opens.
constexpr std::chrono::milliseconds kSignalPeriod(50);

// How long a cancelled opening is waited for, so that what it holds (a port) is free again: long enough for transports
// that look while they wait for other workers, and no nuisance with those that do not.
constexpr std::chrono::milliseconds kCancelPeriod(1000);

// A call of switchml_open on a thread of its own, which its caller may abandon.
struct Opening {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    std::atomic<bool> abandoned{false};  // is written with the mutex held
    switchml_status status = SWITCHML_OK;
    std::string reason;
    switchml_context *context = nullptr;

    static int is_abandoned(void *user) { return static_cast<Opening *>(user)->abandoned.load() ? 1 : 0; }

    void run(const Library &library, switchml_config config) {
        config.is_cancelled = &Opening::is_abandoned;
        config.is_cancelled_user = this;
        switchml_context *opened = nullptr;
        const switchml_status result = library.open(&config, &opened);
        std::unique_lock<std::mutex> lock(mutex);
        status = result;
        if (result != SWITCHML_OK) {
            reason = library.explain(result, library.last_error());
        } else if (!abandoned) {
            context = opened;
        } else {
            lock.unlock();
            library.close(opened);
            lock.lock();
        }
        done = true;
        ended.notify_all();
    }

    void wait(const std::function<void()> &check_signals) {
        std::unique_lock<std::mutex> lock(mutex);
        while (!ended.wait_for(lock, kSignalPeriod, [this] { return done; })) {
            lock.unlock();
            check_signals();
            lock.lock();
        }
    }

    // Cancels it. The context if it is open already; else the library's thread closes what it still opens.
    switchml_context *abandon() {
        std::unique_lock<std::mutex> lock(mutex);
        abandoned = true;
        ended.wait_for(lock, kCancelPeriod, [this] { return done; });
        return std::exchange(context, nullptr);
    }
};

}  // namespace

std::unique_ptr<Wire> Wire::open(const std::shared_ptr<Library> &library, switchml_config config,
                                 const std::function<void()> &check_signals) {
    const auto opening = std::make_shared<Opening>();
    // its own copy of the name: it may outlive the caller's
    std::thread([opening, library, config, job_name = std::string(config.job_name)]() mutable {
        config.job_name = job_name.c_str();
        opening->run(*library, config);
    }).detach();
    try {
        opening->wait(check_signals);
    } catch (...) {
        library->close(opening->abandon());
        throw;
    }
    if (opening->status != SWITCHML_OK) {
        throw std::runtime_error("cannot open the SwitchML session: " + opening->reason);
    }
    return std::make_unique<Wire>(library, opening->context);
}

Wire::Wire(std::shared_ptr<Library> library, switchml_context *context)
    : library_(std::move(library)), context_(context) {
    last_stats_.struct_size = sizeof(last_stats_);
}

Wire::~Wire() { close(); }

switchml_status Wire::submit(void *data, uint64_t numel, Dtype dtype, switchml_callback callback, void *user,
                             std::string &reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (context_ == nullptr) {
        reason = "the session is closed";
        return SWITCHML_EABORTED;
    }
    const switchml_status status =
        library_->allreduce_submit(context_, data, data, numel, library_dtype(dtype), callback, user);
    if (status != SWITCHML_OK) {
        reason = library_->last_error();
    }
    return status;
}

void Wire::abort(const std::string &) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (context_ != nullptr) {
        library_->abort(context_);
    }
}

bool Wire::read_stats(switchml_stats &stats) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    stats = last_stats_;
    if (context_ != nullptr) {
        library_->get_stats(context_, &stats);
    }
    return true;
}

void Wire::close() {
    switchml_context *context = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (context_ == nullptr) {
            return;
        }
        library_->get_stats(context_, &last_stats_);
        context = std::exchange(context_, nullptr);
    }
    library_->close(context);  // waits for callbacks, which may ask for counters
}

}  // namespace torch_switchml
