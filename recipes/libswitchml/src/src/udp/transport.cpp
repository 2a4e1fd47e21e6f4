// SPDX-License-Identifier: BSD-3-Clause
//
// The udp transport: one queue of jobs per thread, each job cut into one slice
// per thread. A thread runs its slices in order, at a job's end two at a time, so
// jobs complete in order; the thread that ends a job's last slice calls back. A
// job waits for those ahead of it that it shares memory with.
#include "transport.hpp"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "error.hpp"
#include "local_address.hpp"
#include "udp/endpoint.hpp"
#include "udp/lease.hpp"
#include "udp/liveness.hpp"
#include "udp/probe.hpp"
#include "udp/runner.hpp"
#include "udp/session.hpp"

namespace switchml {
namespace {

using udp::Interrupt;
using udp::Runner;

constexpr std::uint64_t kMaxUnits = 0x7FFFFFFF;  // packet numbers have 32 bits; the window comes on top

struct Job {
    JobRequest request;
    std::uint64_t number;  // from 0, counts the session's jobs
    std::uint64_t after;   // begins when so many of them have ended
    std::atomic<std::uint32_t> slices_left;
    std::atomic<bool> failed{false};

    Job(const JobRequest &wanted, std::uint64_t id, std::uint64_t begins_after, std::uint32_t slices)
        : request(wanted), number(id), after(begins_after), slices_left(slices) {}
};

bool share_memory(const void *a, std::uint64_t a_numel, const void *b, std::uint64_t b_numel) {
    const auto first = reinterpret_cast<std::uintptr_t>(a);
    const auto second = reinterpret_cast<std::uintptr_t>(b);
    return first < second + 4 * b_numel && second < first + 4 * a_numel;
}

// Whether what one job writes is nothing that the other reads or writes.
bool are_independent(const JobRequest &a, const JobRequest &b) {
    return !share_memory(a.out, a.numel, b.in, b.numel) && !share_memory(a.in, a.numel, b.out, b.numel) &&
           !share_memory(a.out, a.numel, b.out, b.numel);
}

struct Failure {
    switchml_status status;
    std::string message;
    const Job *culprit;  // nullptr: none of the jobs is to blame
};

class UdpTransport final : public Transport {
  public:
    explicit UdpTransport(const Settings &settings) : settings_(settings) {
        const wire::IpAddress address = choose_local_address(settings_);
        const wire::Endpoint local{address, first_port(settings_, address)};
        // Bound before the session is asked for, so that a port in use does not disturb the other workers.
        std::vector<wire::UdpSocket> sockets = udp::bind_sockets(settings_, local);
        const udp::Session session = udp::open_session(settings_, local);
        try {
            udp::probe_path(settings_, session, sockets);
            for (std::uint32_t thread = 0; thread < settings_.num_threads; ++thread) {
                lines_.push_back(std::make_unique<Line>(*this, thread, std::move(sockets[thread]), session));
            }
        } catch (...) {
            udp::give_back(session);
            throw;
        }
        try {
            lease_ = std::make_unique<udp::Lease>(session, liveness_,
                                                  [this](const std::string &reason) { lose_session(reason); });
            for (auto &line : lines_) line->thread = std::thread([this, &line] { serve(*line); });
        } catch (...) {
            if (lease_ == nullptr) udp::give_back(session);
            stop({SWITCHML_ENOMEM, "cannot start a thread", nullptr});
            throw Error(SWITCHML_ENOMEM, "cannot start a thread; see the limit of processes (ulimit -u)");
        }
    }

    ~UdpTransport() override {
        stop({SWITCHML_EABORTED, "switchml_close was called before the job was done", nullptr});
    }

    void submit(const JobRequest &request) override {
        const udp::Part longest = udp::part_of(request.numel, settings_.num_threads, 0);
        const std::uint32_t window = settings_.max_outstanding_packets / settings_.num_threads;
        if (udp::count_units(longest.numel, request.dtype, settings_.packet_numel, window) > kMaxUnits) {
            throw Error(SWITCHML_EINVAL,
                        "numel is " + std::to_string(request.numel) +
                            ", more than packets can be numbered; raise SWITCHML_NUM_THREADS or split it");
        }
        const std::lock_guard lock(mutex_);
        if (failure_) throw Error(failure_->status, "the session has ended: " + failure_->message);
        const auto job = std::make_shared<Job>(request, next_job_, jobs_before(request), settings_.num_threads);
        pending_.push_back(job);
        try {
            enqueue(job);
        } catch (const std::bad_alloc &) {
            pending_.pop_back();
            throw;
        }
        ++next_job_;
        ++submitted_;
        arrived_.notify_all();
    }

    void abort() override { fail({SWITCHML_EABORTED, "switchml_abort was called", nullptr}); }

    void read_stats(switchml_stats &stats) const noexcept override {
        {
            const std::lock_guard lock(mutex_);
            stats.jobs_submitted = submitted_;
            stats.jobs_completed = completed_;
            stats.jobs_failed = failed_;
            stats.elements_reduced = elements_;
        }
        for (const auto &line : lines_) {
            const udp::Traffic &traffic = line->runner.traffic();
            stats.packets_sent += traffic.sent.load(std::memory_order_relaxed);
            stats.packets_received += traffic.received.load(std::memory_order_relaxed);
            stats.packets_retransmitted += traffic.retransmitted.load(std::memory_order_relaxed);
            stats.packets_discarded += traffic.discarded.load(std::memory_order_relaxed);
            stats.receive_buffer_wanted += line->runner.buffer_wanted();
            stats.receive_buffer_granted += line->runner.buffer_granted();
        }
    }

  private:
    struct Line final : udp::SliceQueue {
        Line(UdpTransport &owner, std::uint32_t thread_number, wire::UdpSocket &&socket, const udp::Session &session)
            : transport(owner),
              runner(owner.settings_, thread_number, std::move(socket), session, owner.interrupt_, owner.liveness_),
              number(thread_number) {
            under_way.reserve(2);  // a slice, and the one that begins at its end
        }

        std::optional<udp::SliceData> next() override { return transport.begin_next(*this); }
        void completed() override { transport.end_oldest(*this); }

        UdpTransport &transport;
        Runner runner;
        std::uint32_t number;
        std::deque<std::shared_ptr<Job>> jobs;        // guarded by mutex_
        std::vector<std::shared_ptr<Job>> under_way;  // the thread's own
        std::thread thread;
    };

    // How many jobs have to end before one may begin, under the mutex.
    std::uint64_t jobs_before(const JobRequest &request) const {
        const auto last = std::find_if(pending_.rbegin(), pending_.rend(),
                                       [&](const auto &job) { return !are_independent(job->request, request); });
        return last == pending_.rend() ? 0 : (*last)->number + 1;
    }

    // All lines or none: a job that only some threads know would never end.
    void enqueue(const std::shared_ptr<Job> &job) {
        std::size_t done = 0;
        try {
            for (; done < lines_.size(); ++done) lines_[done]->jobs.push_back(job);
        } catch (const std::bad_alloc &) {
            while (done > 0) lines_[--done]->jobs.pop_back();
            throw;
        }
    }

    void serve(Line &line) noexcept {
        // Threads inherit the creator's rounding and flush-to-zero modes; all workers must compute alike.
        std::fesetenv(FE_DFL_ENV);
        while (await_job(line)) {
            run_slices(line);
            while (!line.under_way.empty()) {
                line.under_way.front()->failed.store(true, std::memory_order_relaxed);
                end_oldest(line);
            }
        }
    }

    // False once the session is closed and nothing is left.
    bool await_job(Line &line) {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [&] { return may_begin_next(line) || (closing_ && line.jobs.empty()); });
        if (line.jobs.empty()) return false;
        take_job(line);
        return true;
    }

    bool may_begin_next(const Line &line) const { return !line.jobs.empty() && line.jobs.front()->after <= ended(); }

    std::uint64_t ended() const { return completed_ + failed_; }

    void take_job(Line &line) {
        line.under_way.push_back(line.jobs.front());
        line.jobs.pop_front();
    }

    std::optional<udp::SliceData> begin_next(Line &line) {
        const std::lock_guard lock(mutex_);
        if (!may_begin_next(line) || has_no_slice(line, *line.jobs.front())) return std::nullopt;
        const Job &job = *line.jobs.front();
        take_job(line);
        return slice_of(line, job);
    }

    void end_oldest(Line &line) noexcept {
        const std::shared_ptr<Job> job = std::move(line.under_way.front());
        line.under_way.erase(line.under_way.begin());
        if (job->slices_left.fetch_sub(1, std::memory_order_acq_rel) == 1) finish(*job);
    }

    // Leaves under way what was not done.
    void run_slices(Line &line) noexcept {
        const Job &job = *line.under_way.front();
        try {
            if (interrupt_.raised()) return;
            if (has_no_slice(line, job)) return end_oldest(line);
            line.runner.run(slice_of(line, job), line);
        } catch (const Error &error) {
            blame(line, error.status(), error.what());
        } catch (const std::system_error &error) {
            blame(line, SWITCHML_EIO, error.what());
        } catch (const std::bad_alloc &) {
            blame(line, SWITCHML_ENOMEM, "out of memory");
        } catch (const std::exception &error) {
            blame(line, SWITCHML_EINTERNAL, error.what());
        }
    }

    // Thread 0 asks whether the others' jobs are empty, too.
    bool has_no_slice(const Line &line, const Job &job) const {
        return line.number != 0 && udp::part_of(job.request.numel, settings_.num_threads, line.number).numel == 0;
    }

    udp::SliceData slice_of(const Line &line, const Job &job) const {
        const udp::Part part = udp::part_of(job.request.numel, settings_.num_threads, line.number);
        const std::uint64_t offset = 4 * part.first;
        udp::SliceData slice;
        slice.rank = settings_.rank;
        slice.job = {job.request.numel, job.request.dtype, static_cast<std::uint16_t>(job.number)};
        if (part.numel > 0) {  // null buffers are allowed when there is nothing in them
            slice.in = static_cast<const char *>(job.request.in) + offset;
            slice.out = static_cast<char *>(job.request.out) + offset;
        }
        slice.numel = part.numel;
        return slice;
    }

    void blame(const Line &line, switchml_status status, std::string message) noexcept {
        fail({status, std::move(message), line.under_way.front().get()});
    }

    void lose_session(const std::string &reason) noexcept {
        fail({SWITCHML_EREFUSED, "the switch no longer has this session: " + reason, nullptr});
    }

    // The first failure is the session's.
    void fail(Failure failure) noexcept {
        {
            const std::lock_guard lock(mutex_);
            if (!failure_) failure_ = std::move(failure);
        }
        interrupt_.raise();
    }

    void finish(const Job &job) noexcept {
        switchml_status status = SWITCHML_OK;
        std::string message;
        {
            const std::lock_guard lock(mutex_);
            if (job.failed.load(std::memory_order_relaxed)) {
                ++failed_;
                status = failure_->status;
                const bool follower = failure_->culprit != nullptr && failure_->culprit != &job;
                try {
                    message =
                        follower ? "an earlier job of the session failed: " + failure_->message : failure_->message;
                } catch (const std::bad_alloc &) {  // the status has to do
                }
            } else {
                ++completed_;
                elements_ += job.request.numel;
            }
            pending_.pop_front();  // the oldest is the first to end
        }
        arrived_.notify_all();
        job.request.callback(job.request.user, status, message.c_str());
    }

    void stop(Failure failure) noexcept {
        fail(std::move(failure));
        {
            const std::lock_guard lock(mutex_);
            closing_ = true;
        }
        arrived_.notify_all();
        for (auto &line : lines_) {
            if (line->thread.joinable()) line->thread.join();
        }
        lease_.reset();
    }

    const Settings settings_;
    Interrupt interrupt_;
    udp::Liveness liveness_;
    std::vector<std::unique_ptr<Line>> lines_;  // fixed before the first thread starts
    std::unique_ptr<udp::Lease> lease_;         // likewise, and ended after the last
    mutable std::mutex mutex_;
    std::condition_variable arrived_;
    bool closing_ = false;
    std::optional<Failure> failure_;
    std::deque<std::shared_ptr<Job>> pending_;  // submitted, and not ended
    std::uint64_t next_job_ = 0;
    std::uint64_t submitted_ = 0;
    std::uint64_t completed_ = 0;
    std::uint64_t failed_ = 0;
    std::uint64_t elements_ = 0;
};

}  // namespace

std::unique_ptr<Transport> open_transport(const Settings &settings) { return std::make_unique<UdpTransport>(settings); }

const char *transport_name() noexcept { return "udp"; }

bool transport_has_controller() noexcept { return true; }

// Four kernel packets of 63 (wire::max_burst). With 256 a fifth goes with 4, and costs nearly as much as a full one.
std::uint32_t transport_window() noexcept { return 252; }

Environment transport_environment() { return process_environment; }

}  // namespace switchml
