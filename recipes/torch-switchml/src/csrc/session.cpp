// SPDX-License-Identifier: BSD-3-Clause
#include "session.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "gil.h"
#include "host_reduction.h"
#include "job.h"
#include "wire.h"

namespace torch_switchml {

namespace {

// How long the last results of a rank that has ended may take, which has done its part in them perhaps.
constexpr std::chrono::milliseconds kLastResultsPeriod(1000);

}  // namespace

std::shared_ptr<Session> Session::open(std::shared_ptr<Library> library, std::shared_ptr<Counters> counters,
                                       const SessionOptions &options, const std::function<void()> &check_signals,
                                       std::function<void()> on_closed) {
    std::shared_ptr<Session> session(new Session(std::move(library), std::move(counters), options));
    try {
        session->carrier_ = session->make_carrier(check_signals);
    } catch (const std::system_error &) {
        throw std::runtime_error(
            "cannot open the SwitchML session: the system gives no thread for it; see the limits of "
            "processes and of memory (ulimit -u, ulimit -v)");
    }
    session->on_closed_ = std::move(on_closed);
    return session;
}

Session::Session(std::shared_ptr<Library> library, std::shared_ptr<Counters> counters, const SessionOptions &options)
    : library_(std::move(library)),
      counters_(std::move(counters)),
      options_(options),
      owner_(getpid()),
      pool_(std::make_unique<CompletionPool>()),
      feeder_(std::make_unique<CompletionPool>(1)),
      limits_(std::make_unique<CallLimits>([this](auto limit) { end_for_limit(limit); })) {}

Session::~Session() { close(); }

std::unique_ptr<Carrier> Session::make_carrier(const std::function<void()> &check_signals) const {
    std::unique_ptr<Carrier> wire;
    if (options_.worker) {
        switchml_config config{};
        config.struct_size = sizeof(config);
        config.rank = static_cast<uint32_t>(*options_.worker);
        config.num_workers = static_cast<uint32_t>(options_.num_workers);
        config.job_timeout_ms = options_.job_timeout_ms;
        config.worker_port = options_.worker_port;
        config.job_name = options_.job_name.c_str();
        wire = Wire::open(library_, config, check_signals);
    }
    if (!options_.board) {
        return wire;
    }
    const HostReductionOptions options{options_.job_timeout_ms, options_.wire_ranks};
    return std::make_unique<HostReduction>(options_.board, std::move(wire), options);
}

c10::intrusive_ptr<c10d::Work> Session::submit(const std::vector<at::Tensor> &tensors, Dtype wire,
                                               const CallOptions &options) {
    auto job = std::make_unique<Job>(shared_from_this(), tensors, wire, options.reduction);
    const c10::Device device = tensors.front().device();
    job->work = c10::make_intrusive<DelegatedWork>(options_.rank, tensors, options.sequence_number, options.title);
    job->limit = options.limit;
    if (!device.is_cpu()) {
        use_lane(*job, device);
    } else if (!has_to_wait(job->access())) {
        job->prepare();
    }
    c10::intrusive_ptr<c10d::Work> work = job->work;
    const std::lock_guard<std::mutex> lock(entry_mutex_);
    check_usable();
    if (job->limit) {
        limits_->start();
    }
    if (!job->wire.defined() || feeder_->busy()) {
        hand_to_feeder(std::move(job));
    } else {
        hand_over(std::move(job));
    }
    return work;
}

void Session::check_usable() const {
    TORCH_CHECK_WITH(DistBackendError, !closed_ && owner_ == getpid(),
                     "SwitchML: the session of the process group is closed in this process; "
                     "initialise the process group again");
    const auto reason = failure();
    TORCH_CHECK_WITH(DistBackendError, !reason, "SwitchML: the session of the process group failed before (",
                     reason.value_or(""), "); destroy the process group on all ranks and initialise it again");
}

bool Session::Access::comes_before(const Access &later) const {
    return !(is_the_carriers && later.is_the_carriers) && memory->overlaps(*later.memory);
}

uint64_t Session::enter(Access access) {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    if (access.work) {
        access.job = ++submitted_;
    }
    pending_.emplace(next_access_, std::move(access));
    return next_access_++;
}

void Session::enter(Job &job) {
    if (job.is_copy) {
        counters_->count_copied();
    }
    job.number = enter(job.access());
    try {
        limits_->begin(job.number, job.limit);
    } catch (...) {
        settle(job.number);
        throw;
    }
}

// For one of the calls before that of this number. With jobs_mutex_ held.
bool Session::has_to_wait(const Access &access, uint64_t number) const {
    return std::any_of(pending_.begin(), pending_.lower_bound(number),
                       [&access](const auto &one) { return one.second.comes_before(access); });
}

bool Session::has_to_wait(const Access &access) const {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    return has_to_wait(access, next_access_);
}

void Session::settle(uint64_t number) noexcept {
    limits_->end(number);
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    pending_.erase(number);
    settled_.notify_all();
}

// Those that wait for the call of this number, which failed.
void Session::break_followers(uint64_t number, const std::string &reason) {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    const Access &failed = pending_.at(number);
    for (auto later = pending_.upper_bound(number); later != pending_.end(); ++later) {
        if (failed.comes_before(later->second)) {
            later->second.broken = reason;
        }
    }
}

void Session::await_jobs(const Memory &memory) {
    if (owner_ != getpid()) {
        return;  // what would end the jobs is in the parent only
    }
    const GilReleased released;
    {
        std::unique_lock<std::mutex> lock(jobs_mutex_);
        settled_.wait(lock, [&] {
            return std::none_of(pending_.begin(), pending_.end(), [&memory](const auto &one) {
                return one.second.work && one.second.memory->overlaps(memory);
            });
        });
    }
    for (const c10::Device device : memory.devices()) {
        if (has_lane(device.type())) {
            lane_of(device)->await_written(memory, c10::impl::VirtualGuardImpl(device.type()).getStream(device));
        }
    }
}

void Session::keep_behind(std::shared_ptr<const Memory> memory, const c10::intrusive_ptr<c10d::Work> &work) {
    c10::intrusive_ptr<c10::ivalue::Future> future;
    try {
        future = work->getFuture();
    } catch (const c10::Error &) {
        return;
    }
    const bool is_on_device = !memory->devices().empty();
    const uint64_t number = enter({memory, nullptr, false, {}});
    future->addCallback([session = weak_from_this(), memory = std::move(memory), number,
                         work = is_on_device ? work : nullptr](c10::ivalue::Future &done) {
        if (const auto open = session.lock()) {
            if (done.hasError()) {
                open->break_followers(number, done.tryRetrieveErrorMessage());
            }
            if (work) {
                open->settle_on_devices(memory, *work);
            }
            open->settle(number);
        }
    });
}

void Session::hand_over(std::unique_ptr<Job> job) {
    enter(*job);
    if (send(*job)) {
        (void)job.release();  // the carrier's until on_done
        return;
    }
    counters_->count_failed();
    settle(job->number);
    std::rethrow_exception(job->error);
}

bool Session::send(Transfer &transfer) {
    add_busy(1);
    std::string reason;
    const switchml_status status =
        carrier_->submit(transfer.data(), transfer.numel(), transfer.dtype, &Session::on_done, &transfer, reason);
    if (status == SWITCHML_OK) {
        return true;
    }
    record_end(transfer, status, reason.c_str());
    return false;
}

void Session::add_busy(int change) noexcept {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    busy_ += change;
    drained_.notify_all();
}

// On a thread of the carrier, which must neither wait for a user's callback
// nor meet an exception: nothing here fails for want of memory.
void Session::on_done(void *user, switchml_status status, const char *message) noexcept {
    auto *const transfer = static_cast<Transfer *>(user);
    const std::shared_ptr<Session> session = transfer->session;
    session->record_end(*transfer, status, message);
    session->run_on_pool(std::unique_ptr<Transfer>(transfer));
}

void Session::run_on_pool(std::unique_ptr<Transfer> transfer) noexcept {
    Transfer &kept = *transfer;
    std::unique_ptr<CompletionPool::Task> task = std::move(transfer);
    if (!pool_->post(task)) {
        fail_for_want_of_a_thread(kept);
        task->run();
    }
}

void Session::record_end(Transfer &transfer, switchml_status status, const char *message) noexcept {
    if (status != SWITCHML_OK) {
        try {
            const auto reason = reason_of(status);
            const std::string error =
                transfer.describe() + " failed: " + reason.value_or(library_->explain(status, message));
            transfer.error = backend_error(error);
            fail(error);
        } catch (...) {
            transfer.error = std::current_exception();
            fail("out of memory");
        }
    }
    add_busy(-1);
}

// The callbacks run on the carrier's thread, which must not wait: so whatever
// they may wait for ends first.
void Session::fail_for_want_of_a_thread(Transfer &transfer) noexcept {
    try {
        const std::string error =
            transfer.describe() +
            " cannot be completed: the system gives no thread for callbacks; see the limits of processes and of "
            "memory (ulimit -u, ulimit -v), or let fewer callbacks wait at a time";
        fail(error);
        if (!transfer.error) {
            transfer.error = backend_error(error);
        }
    } catch (...) {
        transfer.error = std::current_exception();
        fail("out of memory");
    }
    abort();
}

void Session::fail(const std::string &reason) noexcept {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    if (failure_) {
        return;
    }
    try {
        failure_ = reason;
    } catch (const std::bad_alloc &) {
        failure_.emplace();  // no reason is better than no failure
    }
    settled_.notify_all();
}

// What is known here and not by the carrier: why it was aborted, or who it was that it could not name.
std::optional<std::string> Session::reason_of(switchml_status status) const {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    return loss_ || status != SWITCHML_EABORTED ? loss_ : failure_;
}

void Session::end_for_lost_rank(const std::string &reason) {
    {
        std::unique_lock<std::mutex> lock(jobs_mutex_);
        loss_ = reason;
        drained_.wait_for(lock, kLastResultsPeriod, [this] { return busy_ == 0; });
    }
    abort(reason);
}

// The other ranks are told at once: this one may live on and hold its lease.
void Session::end_for_limit(std::chrono::milliseconds limit) {
    abort("an allreduce had no result within its time limit of " + std::to_string(limit.count()) + " ms");
    carrier_->close();
}

void Session::complete(Job &job) noexcept {
    c10::OptionalStreamGuard guard;  // whose work the future's users wait for
    try {
        if (job.lane) {
            guard.reset_stream(job.lane->back());
        }
        if (!job.error) {
            job.write_back();
        }
        if (job.lane) {
            job.lane->note_written(job.memory);
        }
    } catch (...) {
        job.error = std::current_exception();
    }
    if (job.error) {
        counters_->count_failed();
    } else {
        counters_->count_completed(job.dtype, job.total());
        if (job.lane) {
            counters_->count_device_job();
        }
        if (options_.board && options_.board->size() > 1) {
            counters_->count_reduced_in_host(job.total());
        }
    }
    settle(job.number);  // before its callbacks run: one that calls barrier() must not wait for itself
    job.work->complete(job.error);
}

std::vector<c10::intrusive_ptr<c10d::Work>> Session::pending() const {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (const auto &[number, access] : pending_) {
        if (access.work) {
            works.emplace_back(access.work);
        }
    }
    return works;
}

std::vector<OpenCall> Session::open_calls() const {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    std::vector<OpenCall> calls;
    for (const auto &[number, access] : pending_) {
        if (access.work) {
            OpenCall call{access.job, {}, {}};
            for (const at::Tensor &tensor : access.work->tensors()) {
                call.sizes.push_back(tensor.sizes().vec());
                call.dtypes.emplace_back(c10::toString(tensor.scalar_type()));
            }
            calls.push_back(std::move(call));
        }
    }
    return calls;
}

uint64_t Session::submitted() const {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    return submitted_;
}

std::optional<std::string> Session::failure() const {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    return failure_;
}

std::optional<std::string> Session::library_stats() const {
    switchml_stats stats{};
    if (!carrier_ || !carrier_->read_stats(stats)) {
        return std::nullopt;
    }
    return library_->describe_stats(stats);
}

void Session::abort(const std::string &reason) {
    if (!reason.empty()) {
        fail(reason);
    }
    if (carrier_ && owner_ == getpid()) {
        carrier_->abort(reason);
    }
}

void Session::close() {
    {
        const std::lock_guard<std::mutex> lock(entry_mutex_);
        if (std::exchange(closed_, true)) {
            return;
        }
    }
    if (owner_ != getpid()) {
        // Their threads and streams exist in the parent only, and their destructors would wait for them: a child made
        // by fork() keeps its copy of them until it ends.
        (void)pool_.release();
        (void)feeder_.release();
        (void)limits_.release();
        (void)lanes_.release();
        (void)carrier_.release();
        return;
    }
    drain();
    feeder_->stop();
    limits_->stop();
    if (carrier_) {  // else it never opened
        carrier_->close();
    }
    pool_->stop();
    lanes_->clear();
    if (on_closed_) {
        std::exchange(on_closed_, nullptr)();
    }
}

void Session::drain() {
    std::unique_lock<std::mutex> lock(jobs_mutex_);
    drained_.wait(lock, [this] { return busy_ == 0; });
}

}  // namespace torch_switchml
