// SPDX-License-Identifier: BSD-3-Clause
//
// The published client library (p4lang/p4app-switchML) as a transport. Its
// context takes jobs and runs them in order on threads of its own; one thread
// here waits for the oldest job, sees that there is progress, and calls back.
#include "transport.hpp"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "context.h"
#include "error.hpp"
#include "published/backend.hpp"
#include "published/configuration.hpp"

namespace switchml {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kGlance{20};                // how soon an abort or a failure is seen while a job runs
constexpr std::uint64_t kMaxUnits = 0x7FFFFFFF;  // packet numbers have 32 bits; the window comes on top

struct Failure {
    switchml_status status = SWITCHML_OK;
    std::string message;
};

Failure describe(const std::exception_ptr &reason) noexcept {
    try {
        std::rethrow_exception(reason);
    } catch (const Error &error) {
        return {error.status(), error.what()};
    } catch (const std::bad_alloc &) {
        return {SWITCHML_ENOMEM, "out of memory"};
    } catch (const std::exception &error) {  // FatalError: what the published library would have aborted for
        return {SWITCHML_EIO, std::string(published::backend_name()) + ": " + error.what()};
    } catch (...) {
        return {SWITCHML_EINTERNAL, "an unknown exception"};
    }
}

// Its own defaults write files to the folder for temporary ones. A program that uses glog itself keeps its settings.
void quieten_log() {
    if (google::IsGoogleLoggingInitialized()) return;
    const auto set = [](const char *name) { return std::getenv(name) != nullptr; };
    if (!set("GLOG_log_dir") && !set("GLOG_logtostderr")) FLAGS_logtostderr = true;
    if (!set("GLOG_minloglevel") && !set("GLOG_v")) FLAGS_minloglevel = google::GLOG_WARNING;
}

// Threads inherit the creator's rounding and flush-to-zero modes; all workers must compute alike.
class DefaultArithmetic {
  public:
    DefaultArithmetic() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultArithmetic() { std::fesetenv(&saved_); }
    DefaultArithmetic(const DefaultArithmetic &) = delete;
    DefaultArithmetic &operator=(const DefaultArithmetic &) = delete;

  private:
    std::fenv_t saved_{};
};

// The published library numbers its threads and jobs, and DPDK starts its environment, once for a process.
class OnlySession {
  public:
    OnlySession() {
        if (taken_.exchange(true))
            throw Error(SWITCHML_EUNSUPPORTED, "this process has a session already; close it first");
    }
    ~OnlySession() { taken_.store(false); }
    OnlySession(const OnlySession &) = delete;
    OnlySession &operator=(const OnlySession &) = delete;

  private:
    static inline std::atomic<bool> taken_{false};
};

class PublishedTransport final : public Transport {
  public:
    explicit PublishedTransport(const Settings &settings) : settings_(settings) {
        published::check_host();
        quieten_log();
        const auto file = published::find_configuration();
        Config config = published::make_config(settings, file, process_environment);
        context_ = std::make_unique<Context>();
        start(config);
        try {
            waiter_ = std::thread([this] { serve(); });
        } catch (const std::system_error &) {
            throw Error(SWITCHML_ENOMEM, "cannot start a thread; see the limit of processes (ulimit -u)");
        }
    }

    ~PublishedTransport() override {
        fail({SWITCHML_EABORTED, "switchml_close was called before the job was done"});
        {
            const std::lock_guard lock(mutex_);
            closing_ = true;
        }
        arrived_.notify_all();
        if (waiter_.joinable()) waiter_.join();
    }

    void submit(const JobRequest &request) override {
        check_size(request.numel);
        const std::lock_guard lock(mutex_);
        if (failure_) throw Error(failure_->status, "the session has ended: " + failure_->message);
        pending_.push_back({request, nullptr});
        try {
            if (request.numel > 0) pending_.back().job = enqueue(request);
        } catch (...) {
            pending_.pop_back();
            throw;
        }
        ++submitted_;
        arrived_.notify_all();
    }

    void abort() override { fail({SWITCHML_EABORTED, "switchml_abort was called"}); }

    void read_stats(switchml_stats &stats) const noexcept override {
        const Stats::Traffic traffic = context_->GetStats().GetTraffic();
        stats.packets_sent = traffic.sent - std::min(traffic.sent, traffic.resent);
        stats.packets_received = traffic.correct;
        stats.packets_retransmitted = traffic.resent;
        stats.packets_discarded = traffic.wrong;
        const std::lock_guard lock(mutex_);
        stats.jobs_submitted = submitted_;
        stats.jobs_completed = completed_;
        stats.jobs_failed = failed_;
        stats.elements_reduced = elements_;
    }

  private:
    struct Pending {
        JobRequest request;
        std::shared_ptr<Job> job;  // nothing: no elements, no traffic
    };

    void start(Config &config) {
        const DefaultArithmetic arithmetic;
        try {
            context_->Start(&config);
        } catch (const Error &) {
            throw;
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &error) {
            if (const auto explained = published::explain_start(error.what(), config)) throw *explained;
            const Failure failure = describe(std::current_exception());
            throw Error(failure.status, failure.message);
        }
    }

    void check_size(std::uint64_t numel) const {
        const std::uint64_t units = numel / settings_.packet_numel / settings_.num_threads;
        if (units + settings_.max_outstanding_packets + 1 <= kMaxUnits) return;
        throw Error(SWITCHML_EINVAL, "numel is " + std::to_string(numel) +
                                         ", more than packets can be numbered; raise SWITCHML_NUM_THREADS or split it");
    }

    std::shared_ptr<Job> enqueue(const JobRequest &request) {
        const DataType type = request.dtype == SWITCHML_INT32 ? DataType::INT32 : DataType::FLOAT32;
        try {
            return context_->AllReduceAsync(const_cast<void *>(request.in), request.out, request.numel, type,
                                            AllReduceOperation::SUM);
        } catch (const FatalError &) {  // it has stopped by itself, which the waiter is about to see
            const std::exception_ptr reason = context_->GetFailure();
            const Failure failure = describe(reason != nullptr ? reason : std::current_exception());
            throw Error(failure.status, "the session has ended: " + failure.message);
        }
    }

    // The first failure is the session's.
    void fail(Failure failure) noexcept {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::move(failure);
        arrived_.notify_all();
    }

    bool has_failed() const {
        const std::lock_guard lock(mutex_);
        return failure_.has_value();
    }

    void serve() noexcept {
        while (Pending *next = next_pending()) {
            const bool done = next->job == nullptr ? !has_failed() : wait_for(*next->job);
            if (!done) break;
            finish(SWITCHML_OK, "");
        }
        // Its threads write to the buffers until they have ended.
        try {
            context_->Stop();
        } catch (const std::exception &error) {
            fail({SWITCHML_EINTERNAL, error.what()});
        }
        refuse_pending();
    }

    // The oldest job; nothing when the session is over. Only this thread takes jobs away.
    Pending *next_pending() {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [&] { return !pending_.empty() || failure_ || closing_; });
        return failure_ || pending_.empty() ? nullptr : &pending_.front();
    }

    bool wait_for(Job &job) {
        std::uint64_t received = context_->GetStats().GetTraffic().correct;
        Clock::time_point moved = Clock::now();
        while (!job.WaitToComplete(kGlance)) {
            if (const std::exception_ptr reason = context_->GetFailure()) fail(describe(reason));
            if (has_failed()) return false;
            const std::uint64_t now_received = context_->GetStats().GetTraffic().correct;
            if (now_received != received) {
                received = now_received;
                moved = Clock::now();
            } else if (Clock::now() - moved > milliseconds(settings_.job_timeout_ms)) {
                fail({SWITCHML_ETIMEDOUT, "no result from the switch for " + std::to_string(settings_.job_timeout_ms) +
                                              " ms (SWITCHML_JOB_TIMEOUT_MS); a worker or the switch has stopped, or "
                                              "their packets do not arrive"});
            }
        }
        if (job.GetJobStatus() == JobStatus::FINISHED) return true;
        const std::exception_ptr reason = context_->GetFailure();
        fail(reason != nullptr ? describe(reason) : Failure{SWITCHML_EINTERNAL, "the job failed without a reason"});
        return false;
    }

    void finish(switchml_status status, const std::string &message) {
        JobRequest request;
        {
            const std::lock_guard lock(mutex_);
            request = pending_.front().request;
            pending_.pop_front();
            if (status == SWITCHML_OK) {
                ++completed_;
                elements_ += request.numel;
            } else {
                ++failed_;
            }
        }
        request.callback(request.user, status, message.c_str());
    }

    void refuse_pending() {
        Failure failure;
        {
            const std::lock_guard lock(mutex_);
            if (!failure_) failure_ = Failure{SWITCHML_EABORTED, "the session has ended"};
            failure = *failure_;
        }
        bool first = true;
        for (;;) {
            {
                const std::lock_guard lock(mutex_);
                if (pending_.empty()) return;
            }
            const bool follower = !first && failure.status != SWITCHML_EABORTED;
            finish(failure.status, follower ? "an earlier job of the session failed: " + failure.message : failure.message);
            first = false;
        }
    }

    const OnlySession only_;
    const Settings settings_;
    std::unique_ptr<Context> context_;
    mutable std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<Pending> pending_;
    std::optional<Failure> failure_;
    bool closing_ = false;
    std::uint64_t submitted_ = 0;
    std::uint64_t completed_ = 0;
    std::uint64_t failed_ = 0;
    std::uint64_t elements_ = 0;
    std::thread waiter_;
};

}  // namespace

std::unique_ptr<Transport> open_transport(const Settings &settings) {
    return std::make_unique<PublishedTransport>(settings);
}

std::uint32_t transport_window() noexcept { return 256; }

const char *transport_name() noexcept { return SWITCHML_TRANSPORT_NAME; }

Environment transport_environment() { return published::find_configuration().beneath(process_environment); }

}  // namespace switchml
