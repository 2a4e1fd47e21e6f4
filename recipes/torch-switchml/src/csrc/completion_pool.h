// SPDX-License-Identifier: BSD-3-Clause
//
// Threads that finish works: they run the callbacks users hang on futures,
// which must not hold up the transport's own threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace torch_switchml {

// A callback may itself wait for another allreduce (gradient compression
// hooks do, and futures nest as deep as their user likes), so a task must
// never wait for a thread that such a callback occupies: the pool grows by one
// thread whenever a task arrives and none is idle, without a bound of its own.
class CompletionPool {
  public:
    // What is to be run, and the link by which it waits: posting takes no memory.
    class Task {
      public:
        virtual ~Task() = default;
        virtual void run() noexcept = 0;

      private:
        friend class CompletionPool;
        std::unique_ptr<Task> next_;
    };

    // With 1 as `most_threads` the tasks run in the order they were posted in.
    explicit CompletionPool(std::size_t most_threads = SIZE_MAX);
    ~CompletionPool();
    CompletionPool(const CompletionPool &) = delete;
    CompletionPool &operator=(const CompletionPool &) = delete;

    // Takes the task and returns true; returns false, and leaves it to the
    // caller, when no thread is idle and the system gives no new one.
    bool post(std::unique_ptr<Task> &task) noexcept;

    // Whether a task waits or runs.
    bool busy() const noexcept;

    // Runs what was posted, then ends the threads. Safe to call from one of them
    // and more than once; the caller must not hold Python's interpreter lock.
    void stop();

  private:
    // Shared with the threads: the one that stop() could not join, being called
    // from it, still needs it after the pool is gone.
    struct State;

    static void run(const std::shared_ptr<State> &state);

    std::shared_ptr<State> state_;
};

}  // namespace torch_switchml
