// SPDX-License-Identifier: BSD-3-Clause
//
// Threads that finish works: they run the callbacks users hang on futures,
// which must not hold up the transport's own threads.
#pragma once

#include <functional>
#include <memory>

namespace torch_switchml {

// A callback may itself wait for another allreduce (gradient compression
// hooks do), so a task must never wait for a thread that such a callback
// occupies: the pool grows by one thread whenever a task arrives and none is
// idle, up to a bound far above any nesting seen.
class CompletionPool {
 public:
  CompletionPool();
  ~CompletionPool();
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // Throws std::system_error when it needs a thread and the system gives none.
  void post(std::function<void()> task);

  // Runs what was posted, then ends the threads. Safe to call from one of them
  // and more than once; the caller must not hold Python's interpreter lock.
  void stop();

 private:
  // Shared with the threads: the one that stop() could not join, being called
  // from it, still needs it after the pool is gone.
  struct State;

  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

} // namespace torch_switchml
