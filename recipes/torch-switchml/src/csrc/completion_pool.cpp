// SPDX-License-Identifier: BSD-3-Clause
#include "completion_pool.h"

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace torch_switchml {

struct CompletionPool::State {
    explicit State(std::size_t most) : most_threads(most) {}

    const std::size_t most_threads;
    std::mutex mutex;
    std::condition_variable changed;
    std::unique_ptr<Task> first;
    Task *last = nullptr;
    std::size_t waiting = 0;  // tasks in the list
    std::vector<std::thread> threads;
    std::size_t idle = 0;
    bool stopping = false;

    void push(std::unique_ptr<Task> &task) noexcept {
        Task *const added = task.get();
        (last != nullptr ? last->next_ : first) = std::move(task);
        last = added;
        ++waiting;
    }

    std::unique_ptr<Task> pop() noexcept {
        std::unique_ptr<Task> task = std::move(first);
        first = std::move(task->next_);
        if (!first) {
            last = nullptr;
        }
        --waiting;
        return task;
    }
};

CompletionPool::CompletionPool(std::size_t most_threads) : state_(std::make_shared<State>(most_threads)) {}

CompletionPool::~CompletionPool() { stop(); }

bool CompletionPool::post(std::unique_ptr<Task> &task) noexcept {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->waiting >= state_->idle && state_->threads.size() < state_->most_threads) {
        try {
            state_->threads.reserve(state_->threads.size() + 1);
            state_->threads.emplace_back([state = state_] { run(state); });
        } catch (const std::exception &) {  // std::system_error or std::bad_alloc
            return false;
        }
    }
    state_->push(task);
    state_->changed.notify_one();
    return true;
}

bool CompletionPool::busy() const noexcept {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->first != nullptr || state_->idle < state_->threads.size();
}

void CompletionPool::run(const std::shared_ptr<State> &state) {
    std::unique_lock<std::mutex> lock(state->mutex);
    while (true) {
        ++state->idle;
        state->changed.wait(lock, [&] { return state->stopping || state->first; });
        --state->idle;
        if (!state->first) {
            return;
        }
        std::unique_ptr<Task> task = state->pop();
        lock.unlock();
        task->run();
        task = nullptr;  // may drop the last reference to a tensor or a Python object
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
    for (std::thread &thread : threads) {
        if (thread.get_id() == std::this_thread::get_id()) {
            thread.detach();  // a callback dropped the last reference to the group
        } else {
            thread.join();
        }
    }
}

}  // namespace torch_switchml
