// SPDX-License-Identifier: BSD-3-Clause
#include "engine.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include <pybind11/pybind11.h>

#include "gil.h"
#include "library.h"

namespace torch_mpi {

namespace {

using namespace std::chrono_literals;

// MPI moves a piece of a large message at each test: several to a look, so that locks and clocks cost little beside it.
constexpr int kTestsInLook = 4;
// A look that copies takes several times as long as one that finds nothing, which is
// a microsecond or several: by the MPI library, and by what is under way in it.
constexpr int kBusyTimes = 4;
constexpr auto kShortestBusyLook = 3us;
constexpr auto kLongestEmptyLook = 50us;
// The next piece of a message is some times as far away as this one took to copy.
constexpr int kActivityTimes = 32;
// How long a core is kept for what may come at any moment, and then given away for
// a turn of the scheduler between looks, until the pauses begin.
constexpr auto kKeepTime = 30us;
constexpr auto kSpinTime = 200us;
constexpr auto kLongestPause = 1ms;
// A wait of a quarter of an hour should not feel its pauses, and a short one not either.
constexpr int kPauseShare = 16;
constexpr auto kSignalInterval = 20ms;

std::atomic<bool> crowded{false};

}  // namespace

std::string seconds_in_words(std::chrono::milliseconds time) {
    std::string text = std::to_string(static_cast<double>(time.count()) / 1000.0);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') {
        text.pop_back();
    }
    return text + " s";
}

Backoff::Backoff() : last_activity_(Clock::now()) {}

// Without data, too, looks are long at times: the first after a pause, with cold caches,
// and those that an interrupt falls into. So a look counts by the time that it took.
std::chrono::nanoseconds Backoff::after_look(Clock::time_point before, Clock::time_point after, int works) {
    const Clock::duration took = after - before;
    const Clock::duration each = took / works;
    shortest_look_ = std::min(shortest_look_, each);
    if (each > std::clamp<Clock::duration>(kBusyTimes * shortest_look_, kShortestBusyLook, kLongestEmptyLook)) {
        last_activity_ = std::min(after, last_activity_ + kActivityTimes * took);
    }
    const std::chrono::nanoseconds quiet = after - last_activity_;
    if (quiet < kSpinTime) {
        return std::chrono::nanoseconds(quiet < kKeepTime && !crowded ? -1 : 0);
    }
    return std::min<std::chrono::nanoseconds>(quiet / kPauseShare, kLongestPause);
}

void Backoff::set_crowded(bool is) { crowded = is; }

Engine &Engine::get() {
    static auto *const engine = new Engine();  // never deleted: threads may outlive the interpreter
    return *engine;
}

Engine::WorkPtr Engine::start(const std::shared_ptr<Group> &group, Operation operation) {
    require_library();
    auto work = c10::make_intrusive<MpiWork>(group, std::move(operation));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (group->failure) {
        throw_backend_error("the process group failed before: " + *group->failure +
                            "; destroy the process group on all ranks, and make it again");
    }
    count(group, work->operation_);
    if (work->operation_.is_barrier) {
        work->before_ = in_flight(group.get());
        work->before_.erase(std::remove_if(work->before_.begin(), work->before_.end(),
                                           [](const WorkPtr &before) { return before->operation_.is_message(); }),
                            work->before_.end());
    }
    begin(*work);
    work->statuses_.resize(work->requests_.all.size());
    work->is_promised_ = work->operation_.is_waited_for;
    work->waiters_ = work->is_promised_ ? 1 : 0;
    in_flight_.push_back(work);
    if (work->operation_.access) {
        group->unsettled.push_back(work->operation_.access);
    }
    if (!work->is_promised_) {
        call_thread();
    }
    return work;
}

void Engine::count(const std::shared_ptr<Group> &group, Operation &operation) {
    const bool is_known =
        std::any_of(groups_.begin(), groups_.end(), [&group](const auto &other) { return other.lock() == group; });
    if (!is_known) {
        groups_.erase(std::remove_if(groups_.begin(), groups_.end(), [](const auto &one) { return one.expired(); }),
                      groups_.end());
        groups_.push_back(group);
    }
    if (!operation.group_name.empty()) {
        group->name = operation.group_name;
    }
    // neither messages, which are not the same on all ranks, nor what compares the ranks
    if (!operation.is_message() && operation.type != c10d::OpType::UNKNOWN) {
        operation.number = ++group->calls;
    }
}

std::vector<GroupCalls> Engine::calls() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<GroupCalls> found;
    for (const auto &known : groups_) {
        const auto group = known.lock();
        if (!group) {
            continue;
        }
        GroupCalls calls{group->name, group->calls, {}};
        for (const WorkPtr &work : in_flight(group.get())) {
            const Operation &operation = work->operation_;
            OpenCall call{operation.number, operation.name, {}, {}};
            for (const at::Tensor &tensor : operation.inputs.empty() ? operation.outputs : operation.inputs) {
                call.sizes.push_back(tensor.sizes().vec());
                call.dtypes.emplace_back(c10::toString(tensor.scalar_type()));
            }
            calls.pending.push_back(std::move(call));
        }
        found.push_back(std::move(calls));
    }
    return found;
}

// Whoever waits for them drives them, or a thread of ours does.
void Engine::await_settled(const Group &group, const Access &access) {
    require_library();
    const GilReleased released;
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_free = [&] {
        return std::none_of(group.unsettled.begin(), group.unsettled.end(),
                            [&access](const auto &other) { return other->meets(access); });
    };
    while (!settled_.wait_for(lock, kSignalInterval, is_free)) {
        lock.unlock();
        check_python_signals();
        lock.lock();
    }
}

void Engine::settle(Group &group, const std::shared_ptr<const Access> &access) noexcept {
    if (!access) {
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    group.unsettled.erase(std::remove(group.unsettled.begin(), group.unsettled.end(), access), group.unsettled.end());
    settled_.notify_all();
}

// What MPI has begun when it refuses the next call, it goes on with; the group's
// ranks would no longer be at the same call.
void Engine::begin(MpiWork &work) {
    try {
        work.operation_.start(work.requests_);
    } catch (const std::exception &error) {
        if (lose_if_running(work)) {
            work.group_->failure = work.describe() + " was begun in part: " + error.what();
        }
        throw;
    }
}

void Engine::wait(MpiWork &work, std::chrono::milliseconds timeout) {
    if (work.isCompleted()) {
        work.c10d::Work::wait(kNoTimeout);  // throws its error
        return;
    }
    require_library();
    const GilReleased released;
    const auto until = timeout.count() > 0 ? Clock::now() + timeout : Clock::time_point::max();
    auto next_signals = Clock::now() + kSignalInterval;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!std::exchange(work.is_promised_, false)) {
            ++work.waiters_;
        }
    }
    const Waiting waiting{*this, work};
    Backoff backoff;
    while (true) {
        Clock::time_point before;
        Works ended;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (work.state_ == MpiWork::State::kTaken) {
                break;
            }
            before = Clock::now();
            ended = look_at(work, before);
        }
        if (!ended.empty()) {
            complete_all(ended);
            break;
        }
        const auto now = Clock::now();
        const auto pause = backoff.after_look(before, now, 1);
        TORCH_CHECK(now < until, "Operation timed out!");
        if (now >= next_signals) {
            check_python_signals();
            next_signals = now + kSignalInterval;
        }
        if (pause.count() > 0) {
            std::this_thread::sleep_for(pause);
        } else if (pause.count() == 0) {
            sched_yield();
        }
    }
    work.c10d::Work::wait(kNoTimeout);  // whoever took it is ending it, or has; throws its error
}

Engine::Waiting::~Waiting() { engine.let_go(work); }

void Engine::let_go(MpiWork &work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    --work.waiters_;
    if (work.waiters_ == 0 && work.state_ == MpiWork::State::kRunning) {
        call_thread();
    }
}

bool Engine::has_ended(MpiWork &work) {
    auto &requests = work.requests_.all;
    int done = 0;
    int code = MPI_SUCCESS;
    for (int test = 0; test < kTestsInLook && done == 0 && code == MPI_SUCCESS; ++test) {
        code = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, work.statuses_.data());
    }
    if (code == MPI_ERR_IN_STATUS) {
        const auto failed = std::find_if(work.statuses_.begin(), work.statuses_.end(), [](const MPI_Status &status) {
            return status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING;
        });
        const int reason = failed == work.statuses_.end() ? code : failed->MPI_ERROR;
        work.error_ = backend_error(work.describe() + " failed: " + error_text(reason));
        return true;
    }
    if (code != MPI_SUCCESS) {
        work.error_ = backend_error(work.describe() + " failed: " + error_text(code));
        return true;
    }
    return done != 0 && std::all_of(work.before_.begin(), work.before_.end(),
                                    [](const WorkPtr &before) { return before->isCompleted(); });
}

Engine::Works Engine::look_at(MpiWork &work, Clock::time_point now) {
    if (has_ended(work)) {
        return take(work);
    }
    if (now < work.deadline_) {
        return {};
    }
    return fail_all(*work.group_, work.describe() + " did not complete within " +
                                      seconds_in_words(work.operation_.timeout) +
                                      ": another rank has not called it, or is gone");
}

Engine::Works Engine::take(MpiWork &work) {
    work.state_ = MpiWork::State::kTaken;
    const auto found =
        std::find_if(in_flight_.begin(), in_flight_.end(), [&work](const WorkPtr &one) { return one.get() == &work; });
    Works taken{*found};
    in_flight_.erase(found);
    if (!lose_if_running(work) && !work.error_) {
        work.read_statuses();
    }
    return taken;
}

bool Engine::lose_if_running(const MpiWork &work) {
    const auto &requests = work.requests_.all;
    if (std::all_of(requests.begin(), requests.end(), [](MPI_Request one) { return one == MPI_REQUEST_NULL; })) {
        return false;
    }
    lost_.push_back(std::make_shared<const std::pair<Requests, Operation>>(work.requests_, work.operation_));
    work.group_->has_lost = true;
    return true;
}

Engine::Works Engine::fail_all(Group &group, const std::string &reason) {
    if (!group.failure) {
        group.failure = reason;
    }
    Works ended;
    for (const WorkPtr &work : in_flight(&group)) {
        if (!has_ended(*work)) {
            work->error_ = backend_error(reason);
        }
        const Works taken = take(*work);
        ended.insert(ended.end(), taken.begin(), taken.end());
    }
    return ended;
}

void Engine::fail(Group &group, const std::string &reason) {
    if (!library_usable()) {
        return;
    }
    Works ended;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ended = fail_all(group, reason);
    }
    complete_all(ended);
}

std::optional<std::string> Engine::failure(const Group &group) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return group.failure;
}

Engine::Works Engine::in_flight(const Group *group) {
    Works found;
    std::copy_if(in_flight_.begin(), in_flight_.end(), std::back_inserter(found),
                 [group](const WorkPtr &work) { return group == nullptr || work->group_.get() == group; });
    return found;
}

void Engine::close(const std::shared_ptr<Group> &group) {
    if (!library_usable()) {
        return;
    }
    Works left;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        left = in_flight(group.get());
    }
    for (const WorkPtr &work : left) {
        try {
            wait(*work, kNoTimeout);
        } catch (const std::exception &) {  // is the work's, for whoever asks it
        }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!group->failure) {
        group->failure = "it was destroyed";
    }
}

int Engine::unattended() const {
    return static_cast<int>(
        std::count_if(in_flight_.begin(), in_flight_.end(), [](const WorkPtr &work) { return work->waiters_ == 0; }));
}

Engine::Works Engine::look_at_unattended(Clock::time_point now) {
    for (const WorkPtr &work : Works(in_flight_)) {
        if (work->waiters_ == 0) {
            Works ended = look_at(*work, now);
            if (!ended.empty()) {
                return ended;
            }
        }
    }
    return {};
}

Engine::Works Engine::poll(std::unique_lock<std::mutex> &lock) {
    Backoff backoff;
    while (const int works = unattended()) {
        const auto before = Clock::now();
        Works ended = look_at_unattended(before);
        if (!ended.empty()) {
            return ended;
        }
        const auto pause = backoff.after_look(before, Clock::now(), works);
        if (pause.count() > 0) {
            changed_.wait_for(lock, pause);
        } else {
            lock.unlock();
            sched_yield();
            lock.lock();
        }
    }
    return {};
}

// A callback may wait for a later work, so whoever runs callbacks has let go of
// the polling; a further thread is made only where none is idle by then.
void Engine::serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        ++idle_;
        changed_.wait(lock, [this] { return stopping_ || (!is_polled_ && unattended() > 0); });
        --idle_;
        if (stopping_) {
            return;
        }
        is_polled_ = true;
        Works ended = poll(lock);
        is_polled_ = false;
        if (unattended() > 0) {
            call_thread();
        }
        lock.unlock();
        complete_all(ended);
        ended.clear();  // may drop the last reference to a tensor or a Python object
        lock.lock();
    }
}

void Engine::call_thread() {
    if (!is_polled_ && idle_ == 0) {
        threads_.emplace_back([this] { serve(); });
    } else {
        changed_.notify_all();
    }
}

void Engine::complete_all(const Works &works) {
    for (const WorkPtr &work : works) {
        work->complete();
    }
}

void Engine::lose(std::shared_ptr<const void> memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_.push_back(std::move(memory));
}

bool Engine::stop() {
    Works left;
    std::vector<std::thread> threads;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        left = in_flight(nullptr);
    }
    for (const WorkPtr &work : left) {
        try {
            wait(*work, kNoTimeout);
        } catch (const std::exception &) {
        }
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        threads.swap(threads_);
    }
    changed_.notify_all();
    for (std::thread &thread : threads) {
        thread.join();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    return lost_.empty();
}

}  // namespace torch_mpi
