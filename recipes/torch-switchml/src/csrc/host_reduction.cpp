// SPDX-License-Identifier: BSD-3-Clause
#include "host_reduction.h"

#include <algorithm>
#include <cfenv>
#include <cstring>
#include <exception>
#include <new>

#include "host_sum.h"

namespace torch_switchml {

namespace {

using std::chrono::milliseconds;

// How often a rank looks whether the others live, and how much longer than the
// wire's own limit it waits for the wire.
constexpr milliseconds kLookPeriod(500);
constexpr milliseconds kWireMargin(5000);
// How long a host whose ranks differ stays, for other hosts to come to their job and learn why it fails; those that
// come later find that a worker has gone.
constexpr milliseconds kRefusalMargin(2000);
// Looks at the doorbell before it sleeps: a microsecond or two, for processors may be fewer than ranks.
constexpr int kSpins = 50;

void pause_processor() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

bool share_memory(const char *a, uint64_t a_numel, const char *b, uint64_t b_numel) {
    const auto first = reinterpret_cast<uintptr_t>(a);
    const auto second = reinterpret_cast<uintptr_t>(b);
    return first < second + b_numel * kElementBytes && second < first + a_numel * kElementBytes;
}

std::string describe_step(const StepDescription &step) {
    return std::to_string(step.numel) + " " + dtype_name(static_cast<Dtype>(step.dtype)) + " elements as job " +
           std::to_string(step.job);
}

}  // namespace

HostReduction::HostReduction(std::shared_ptr<HostBoard> board, std::unique_ptr<Carrier> wire,
                             HostReductionOptions options)
    : board_(std::move(board)),
      wire_(std::move(wire)),
      options_(std::move(options)),
      last_progress_(Clock::now()),
      last_look_(last_progress_) {
    sources_.reserve(board_->size());
    thread_ = std::thread([this] { serve(); });
}

HostReduction::~HostReduction() { close(); }

switchml_status HostReduction::submit(void *data, uint64_t numel, Dtype dtype, switchml_callback callback, void *user,
                                      std::string &reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failed_ || closing_) {
        const bool failed = board_->failed();
        reason = failed ? board_->failure().reason : "the session is closed";
        return failed ? board_->failure().status : SWITCHML_EABORTED;
    }
    Job job{static_cast<char *>(data), callback, user, {}};  // reduced in place
    job.plan.numel = numel;
    job.plan.dtype = dtype;
    arrived_.push_back(job);
    board_->ring(board_->index());
    return SWITCHML_OK;
}

void HostReduction::abort(const std::string &reason) {
    const std::string what = "rank " + std::to_string(board_->rank(board_->index())) + " aborted its session";
    board_->fail(SWITCHML_EABORTED, reason.empty() ? what : what + ": " + reason);
}

bool HostReduction::read_stats(switchml_stats &stats) const { return wire_ && wire_->read_stats(stats); }

void HostReduction::close() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (std::exchange(closing_, true)) {
            return;
        }
    }
    board_->ring(board_->index());
    thread_.join();
    if (wire_) {
        std::unique_lock<std::mutex> lock(mutex_);
        refusal_ended_.wait_for(lock, kRefusalMargin, [this] { return !refusing_; });
        lock.unlock();
        wire_->close();
    }
    board_->leave();
}

void HostReduction::serve() noexcept {
    std::fesetenv(FE_DFL_ENV);  // threads inherit their maker's rounding and flush-to-zero modes
    while (true) {
        const uint32_t seen = board_->own().doorbell.load();
        try {
            const bool closing = accept_jobs();
            if (board_->failed()) {
                end_all(board_->failure());
            } else if (progress()) {
                last_progress_ = Clock::now();
                continue;
            }
            if (closing) {
                if (jobs_.empty()) {
                    return;
                }
                board_->fail(SWITCHML_EABORTED, "the session was closed before its jobs were done");
                continue;
            }
            wait_for_news(seen);
        } catch (const std::exception &error) {
            board_->fail(SWITCHML_ENOMEM, error.what());
        }
    }
}

// Whether the session is being closed.
bool HostReduction::accept_jobs() {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (!arrived_.empty()) {
        Job job = arrived_.front();
        job.plan.number = next_job_;
        job.plan.first_step = next_step_;
        job.plan.first_chunk = next_chunk_;
        job.after = jobs_before(job);
        jobs_.push_back(job);
        arrived_.pop_front();
        ++next_job_;
        next_step_ += job.plan.num_steps();
        next_chunk_ += job.plan.num_chunks();
    }
    return closing_;
}

// A job reads what those ahead of it have written, where they share memory.
uint64_t HostReduction::jobs_before(const Job &job) const {
    const auto last = std::find_if(jobs_.rbegin(), jobs_.rend(), [&job](const Job &other) {
        return share_memory(other.data, other.plan.numel, job.data, job.plan.numel);
    });
    return last == jobs_.rend() ? 0 : last->plan.number + 1;
}

bool HostReduction::progress() {
    bool moved = board_->leads() && hand_on();
    moved = take_result() || moved;
    moved = reduce() || moved;
    return copy_in() || moved;
}

const HostReduction::Job *HostReduction::job_of_step(uint64_t step) const {
    const auto found = std::find_if(jobs_.begin(), jobs_.end(), [step](const Job &job) {
        return step < job.plan.first_step + job.plan.num_steps();
    });
    return found == jobs_.end() ? nullptr : &*found;
}

const HostReduction::Job *HostReduction::job_of_chunk(uint64_t chunk) const {
    const auto found = std::find_if(jobs_.begin(), jobs_.end(), [chunk](const Job &job) {
        return chunk < job.plan.first_chunk + job.plan.num_chunks();
    });
    return found == jobs_.end() ? nullptr : &*found;
}

Part HostReduction::own_part(const Step &step) const { return step.part_of(board_->index(), board_->size()); }

// The elements that others add, into the staging area.
bool HostReduction::copy_in() {
    const uint64_t number = board_->own().copied.load();
    const Job *const job = job_of_step(number);
    if (job == nullptr || jobs_.front().plan.number < job->after ||
        number >= board_->reached_by_all(&RankProgress::reduced) + kStepsInStaging) {
        return false;
    }
    const Step step = find_step(job->plan, number);
    if (step.numel > 0) {
        const Part part = own_part(step);
        const char *const from = job->data + step.offset * kElementBytes;
        char *const to = board_->staging(board_->index(), number);
        const uint64_t skipped = part.end * kElementBytes;
        std::memcpy(to, from, part.begin * kElementBytes);
        std::memcpy(to + skipped, from + skipped, (step.numel - part.end) * kElementBytes);
    }
    board_->own().steps[number % kStepsInStaging] = {job->plan.number, job->plan.numel,
                                                     static_cast<uint64_t>(job->plan.dtype)};
    board_->advance(&RankProgress::copied, number + 1);
    return true;
}

// The leader goes through every step, to compare what the ranks want, before
// anything of it can reach the wire.
bool HostReduction::reduce() {
    const uint64_t number = board_->own().reduced.load();
    if (number >= board_->own().copied.load()) {
        return false;
    }
    const Job &job = *job_of_step(number);
    const Step step = find_step(job.plan, number);
    if (board_->leads() || !own_part(step).empty()) {
        if (board_->reached_by_all(&RankProgress::copied) <= number ||
            step.chunk >= board_->reached_by_all(&RankProgress::taken) + kChunksInResults) {
            return false;
        }
        if (board_->leads() && !same_everywhere(number)) {
            report_difference(number, job.plan.dtype);
            return false;
        }
        add_part(job, step, number);
    }
    board_->advance(&RankProgress::reduced, number + 1);
    return true;
}

void HostReduction::add_part(const Job &job, const Step &step, uint64_t number) {
    const Part part = own_part(step);
    if (part.empty()) {
        return;
    }
    sources_.clear();
    for (std::size_t index = 0; index < board_->size(); ++index) {
        const char *const first =
            index == board_->index() ? job.data + step.offset * kElementBytes : board_->staging(index, number);
        sources_.push_back(first + part.begin * kElementBytes);
    }
    char *const out = board_->result(step.chunk) + (step.offset_in_chunk + part.begin) * kElementBytes;
    sum_sources(out, sources_, part.numel(), job.plan.dtype);
}

// The host's sum, to the wire; where there is none, it is the group's.
bool HostReduction::hand_on() {
    const Job *const job = job_of_chunk(submitted_);
    if (job == nullptr || board_->reached_by_all(&RankProgress::reduced) < job->plan.chunk_end(submitted_)) {
        return false;
    }
    if (!wire_) {
        ++submitted_;
        on_carried(this, SWITCHML_OK, "");
        return true;
    }
    std::string reason;
    const uint64_t numel = job->plan.chunk_numel(submitted_);
    const switchml_status status =
        wire_->submit(board_->result(submitted_), numel, job->plan.dtype, &HostReduction::on_carried, this, reason);
    if (status != SWITCHML_OK) {
        on_carried(this, status, reason.c_str());
        return false;
    }
    ++submitted_;
    return true;
}

// On a thread of the library. Its jobs end in order.
void HostReduction::on_carried(void *user, switchml_status status, const char *message) noexcept {
    auto *const self = static_cast<HostReduction *>(user);
    HostBoard &board = *self->board_;
    if (status == SWITCHML_OK) {
        board.carried().fetch_add(1);
        board.ring_all();
        board.ring(board.index());
        return;
    }
    self->others_know_.store(true);
    try {
        board.fail(status, message + self->options_.wire_ranks);
    } catch (const std::bad_alloc &) {
        board.fail(status, "out of memory");
    }
}

bool HostReduction::take_result() {
    const uint64_t chunk = board_->own().taken.load();
    if (board_->carried().load() <= chunk) {
        return false;
    }
    const Job *const job = job_of_chunk(chunk);
    const JobPlan &plan = job->plan;
    if (plan.numel > 0) {
        copy_result(job->data + plan.chunk_offset(chunk) * kElementBytes, board_->result(chunk),
                    plan.chunk_numel(chunk) * kElementBytes, plan.numel);
    }
    const bool last = chunk + 1 == plan.first_chunk + plan.num_chunks();
    board_->advance(&RankProgress::taken, chunk + 1);
    if (last) {
        const Job ended = *job;
        jobs_.pop_front();
        ended.callback(ended.user, SWITCHML_OK, "");
    }
    return true;
}

bool HostReduction::same_everywhere(uint64_t step) const {
    const StepDescription &own = board_->own().steps[step % kStepsInStaging];
    for (std::size_t index = 0; index < board_->size(); ++index) {
        if (!(board_->progress(index).steps[step % kStepsInStaging] == own)) {
            return false;
        }
    }
    return true;
}

// The other hosts learn of it by a job of a size that none of theirs has.
void HostReduction::report_difference(uint64_t step, Dtype dtype) {
    std::string text;
    for (std::size_t index = 0; index < board_->size(); ++index) {
        text += (text.empty() ? "rank " : "; rank ") + std::to_string(board_->rank(index)) + ": " +
                describe_step(board_->progress(index).steps[step % kStepsInStaging]);
    }
    board_->fail(SWITCHML_EMISMATCH, text);
    if (!wire_) {
        return;
    }
    refused_.resize((kChunkNumel + 1) * kElementBytes);
    set_refusing(true);
    std::string reason;
    others_know_.store(wire_->submit(refused_.data(), kChunkNumel + 1, dtype, &HostReduction::on_refused, this,
                                     reason) == SWITCHML_OK);
    if (!others_know_.load()) {
        set_refusing(false);
    }
}

void HostReduction::set_refusing(bool refusing) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    refusing_ = refusing;
    refusal_ended_.notify_all();
}

// Whatever came of it: the failure is known here.
void HostReduction::on_refused(void *user, switchml_status, const char *) noexcept {
    static_cast<HostReduction *>(user)->set_refusing(false);
}

void HostReduction::wait_for_news(uint32_t seen) {
    const std::atomic<uint32_t> &doorbell = board_->own().doorbell;
    for (int spins = 0; spins < kSpins; ++spins) {
        if (doorbell.load(std::memory_order_relaxed) != seen) {
            return;
        }
        pause_processor();
    }
    const auto limit = std::min<milliseconds>(kLookPeriod, milliseconds(options_.job_timeout_ms / 4 + 1));
    board_->wait(seen, std::chrono::nanoseconds(limit).count());
    if (Clock::now() - last_look_ >= limit) {
        look_around();
        last_look_ = Clock::now();
    }
}

// Fails the session where another rank has gone or is too late. What such a
// rank did before is taken first: it may have been all that was needed.
void HostReduction::look_around() {
    if (board_->failed()) {
        return;
    }
    const std::size_t dead = board_->dead_peer();
    const std::size_t lagging = jobs_.empty() ? board_->size() : find_lagging();
    const bool left = lagging < board_->size() && board_->progress(lagging).left.load() != 0;
    if ((dead < board_->size() || left) && progress()) {
        return;
    }
    if (dead < board_->size()) {
        board_->fail(SWITCHML_ETIMEDOUT,
                     "rank " + std::to_string(board_->rank(dead)) + " ended without leaving the group");
        return;
    }
    if (left) {
        board_->fail(SWITCHML_ETIMEDOUT, "rank " + std::to_string(board_->rank(lagging)) + " has left the group");
        return;
    }
    if (!jobs_.empty()) {
        const auto silence = std::chrono::duration_cast<milliseconds>(Clock::now() - last_progress_);
        const bool at_wire = lagging == board_->size();
        if (silence >= milliseconds(options_.job_timeout_ms) + (at_wire ? kWireMargin : milliseconds(0))) {
            fail_for_lagging(lagging, silence.count());
        }
    }
}

// The rank that is awaited first; size() where it is the wire.
std::size_t HostReduction::find_lagging() const {
    const uint64_t chunk = board_->own().taken.load();
    const uint64_t needed = job_of_chunk(chunk)->plan.chunk_end(chunk);
    for (const auto counter : {&RankProgress::copied, &RankProgress::reduced}) {
        const uint64_t least = board_->reached_by_all(counter);
        for (std::size_t index = 0; least < needed && index < board_->size(); ++index) {
            if ((board_->progress(index).*counter).load() == least && index != board_->index()) {
                return index;
            }
        }
    }
    return board_->size();
}

void HostReduction::fail_for_lagging(std::size_t lagging, int64_t silence_ms) {
    const std::string who = lagging == board_->size()
                                ? "no result came through rank " + std::to_string(board_->rank(0))
                                : "rank " + std::to_string(board_->rank(lagging)) + " of this host did not join";
    board_->fail(SWITCHML_ETIMEDOUT, who + " for " + std::to_string(silence_ms) + " ms (the limit is job_timeout_ms)");
}

void HostReduction::end_all(const HostFailure &failure) noexcept {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        failed_ = true;
        jobs_.insert(jobs_.end(), arrived_.begin(), arrived_.end());
        arrived_.clear();
    }
    if (wire_ && !others_know_.exchange(true)) {
        wire_->close();  // the switch tells the other hosts that this one has gone
    }
    while (!jobs_.empty()) {
        const Job ended = jobs_.front();
        jobs_.pop_front();
        ended.callback(ended.user, failure.status, failure.reason.c_str());
    }
}

}  // namespace torch_switchml
