// SPDX-License-Identifier: BSD-3-Clause
//
// The one place from which MPI is called once a group is there, under one lock,
// so that MPI_THREAD_SERIALIZED is enough. Who waits for a work drives it with
// MPI_Test in its own thread: nothing is handed over, which would cost as much
// as a small allreduce. A thread of the engine drives what nobody waits for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "work.h"

namespace torch_mpi {

// How long to leave MPI alone between two looks. A look that took long, measured by
// the shortest of this wait, has moved data, and more is likely to come soon: then it
// is looked again at once, for a time in proportion to what it took. After that the
// pauses grow with the time in which nothing came, so that a rank that waits long for
// others leaves its core to them.
class Backoff {
  public:
    Backoff();

    // What to do after a look at so many works that completed none, from its times: a
    // time to sleep, none to give the core away for one turn, a negative one to go on.
    std::chrono::nanoseconds after_look(Clock::time_point before, Clock::time_point after, int works);

    // Whether there are more ranks on this machine than cores for them: then who
    // keeps a core for nothing keeps it from the rank that it waits for.
    static void set_crowded(bool crowded);

  private:
    Clock::time_point last_activity_;
    Clock::duration shortest_look_ = std::chrono::hours(1);
};

// What has not ended, and how much it is.
struct OpenCall {
    uint64_t number = 0;  // among the group's collectives, from 1; 0 for messages
    std::string name;
    std::vector<std::vector<int64_t>> sizes;
    std::vector<std::string> dtypes;
};

struct GroupCalls {
    std::string group;
    uint64_t entered = 0;
    std::vector<OpenCall> pending;
};

// "30 s", "0.5 s".
std::string seconds_in_words(std::chrono::milliseconds time);

class Engine {
  public:
    using WorkPtr = c10::intrusive_ptr<MpiWork>;

    static Engine &get();

    // Hands an operation to MPI. Throws c10::DistBackendError where the group has
    // failed before or MPI refuses it; what fails later fails the work.
    WorkPtr start(const std::shared_ptr<Group> &group, Operation operation);

    // Until no collective of the group that is under way writes what `access` is to
    // read, or is in the way of what it is to write.
    void await_settled(const Group &group, const Access &access);

    // The tensors of a collective are final.
    void settle(Group &group, const std::shared_ptr<const Access> &access) noexcept;

    // Until the work has ended, or throws: the work's error, or that `timeout`
    // passed (0: none but the work's own), or what a signal's handler raised.
    void wait(MpiWork &work, std::chrono::milliseconds timeout);

    // Fails what is under way in the group, and all that is asked of it later.
    void fail(Group &group, const std::string &reason);
    std::optional<std::string> failure(const Group &group);

    // Waits for what is under way in the group; then it takes no more calls.
    void close(const std::shared_ptr<Group> &group);

    // Each group's collectives: how many were asked for, and what has not ended, messages too.
    std::vector<GroupCalls> calls();

    // Calls MPI with nobody else in it.
    template <typename Call>
    void with_lock(Call call) {
        const std::lock_guard<std::mutex> lock(mutex_);
        call();
    }

    // Keeps memory that MPI may still write to, to the end of the process.
    void lose(std::shared_ptr<const void> memory);

    // Waits for all works and ends the threads. False where an operation failed
    // that MPI still works on, so that MPI cannot be ended in order.
    bool stop();

  private:
    using Works = std::vector<WorkPtr>;

    // For as long as a thread waits for a work.
    struct Waiting {
        Engine &engine;
        MpiWork &work;
        ~Waiting();
    };

    Engine() = default;

    // All with the lock held. Works that they return are to be completed without it.
    void count(const std::shared_ptr<Group> &group, Operation &operation);
    void begin(MpiWork &work);
    static bool has_ended(MpiWork &work);
    Works look_at(MpiWork &work, Clock::time_point now);
    Works take(MpiWork &work);
    // Keeps for MPI what it still works on; whether there is any.
    bool lose_if_running(const MpiWork &work);
    Works fail_all(Group &group, const std::string &reason);
    Works look_at_unattended(Clock::time_point now);
    Works poll(std::unique_lock<std::mutex> &lock);
    int unattended() const;
    void call_thread();
    void let_go(MpiWork &work);

    // Works in flight, of a group or of all.
    Works in_flight(const Group *group);

    void serve();
    static void complete_all(const Works &works);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::condition_variable settled_;
    Works in_flight_;
    std::vector<std::thread> threads_;
    int idle_ = 0;
    bool is_polled_ = false;  // a thread looks at what nobody waits for
    bool stopping_ = false;
    // Of operations that failed while MPI had them: it may still write there.
    std::vector<std::shared_ptr<const void>> lost_;
    std::vector<std::weak_ptr<const Group>> groups_;  // that were asked for something
};

}  // namespace torch_mpi
