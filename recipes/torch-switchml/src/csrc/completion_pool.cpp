// SPDX-License-Identifier: BSD-3-Clause
#include "completion_pool.h"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace torch_switchml {

namespace {

constexpr std::size_t kMaxThreads = 64;

} // namespace

struct CompletionPool::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  std::vector<std::thread> threads;
  std::size_t idle = 0;
  bool stopping = false;
};

CompletionPool::CompletionPool() : state_(std::make_shared<State>()) {}

CompletionPool::~CompletionPool() {
  stop();
}

void CompletionPool::post(std::function<void()> task) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->tasks.size() >= state_->idle && state_->threads.size() < kMaxThreads) {
    state_->threads.emplace_back([state = state_] { run(state); });
  }
  state_->tasks.push_back(std::move(task));
  state_->changed.notify_one();
}

void CompletionPool::run(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  while (true) {
    ++state->idle;
    state->changed.wait(lock, [&] { return state->stopping || !state->tasks.empty(); });
    --state->idle;
    if (state->tasks.empty()) {
      return;
    }
    std::function<void()> task = std::move(state->tasks.front());
    state->tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr; // may drop the last reference to a tensor or a Python object
    lock.lock();
  }
}

void CompletionPool::stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopping = true;
    threads.swap(state_->threads);
  }
  state_->changed.notify_all();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach(); // a callback dropped the last reference to the group
    } else {
      thread.join();
    }
  }
}

} // namespace torch_switchml
