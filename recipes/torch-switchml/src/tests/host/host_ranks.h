// SPDX-License-Identifier: BSD-3-Clause
//
// The ranks of a host as processes of a test, and a wire that ends in the leader.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "host_reduction.h"

namespace host_test {

using namespace torch_switchml;

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            std::_Exit(1);                                                               \
        }                                                                                \
    } while (false)

constexpr std::size_t kRanks = 8;

// What the processes of a test tell each other.
struct Meeting {
    std::atomic<int> processes[kRanks];
    std::atomic<int> ready;
    char address[128];
    std::atomic<uint64_t> sums[kRanks];
    std::atomic<int> go;
};

// What the leader has: a wire that gives all back, one that does so late, one that never answers, or none as in a group
// of one host.
enum class Wire { kMirror, kLate, kSilent, kNone };

constexpr std::chrono::milliseconds kLateness(500);

// One worker alone: what it sends comes back.
class Mirror final : public Carrier {
  public:
    explicit Mirror(Wire wire) : wire_(wire), thread_([this] { serve(); }) {}
    ~Mirror() override { close(); }

    switchml_status submit(void *, uint64_t numel, Dtype, switchml_callback callback, void *user,
                           std::string &) override {
        const std::lock_guard<std::mutex> lock(mutex_);
        jobs_.push_back({callback, user});
        sizes.push_back(numel);
        changed_.notify_all();
        return SWITCHML_OK;
    }
    void abort(const std::string &) override {}
    bool read_stats(switchml_stats &) const override { return false; }
    void close() override {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            closing_ = true;
            changed_.notify_all();
        }
        if (thread_.joinable()) {
            thread_.join();
        }
    }

    std::vector<uint64_t> sizes;
    int answered = 0;  // jobs that were not aborted; to be read once it is closed

  private:
    struct Entry {
        switchml_callback callback;
        void *user;
    };

    void serve() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            changed_.wait(lock, [this] { return closing_ || (wire_ != Wire::kSilent && !jobs_.empty()); });
            if (wire_ == Wire::kLate) {
                changed_.wait_for(lock, kLateness, [this] { return closing_.load(); });
            }
            if (jobs_.empty()) {
                return;
            }
            const Entry entry = jobs_.front();
            jobs_.pop_front();
            const bool aborted = closing_;
            answered += aborted ? 0 : 1;
            lock.unlock();
            entry.callback(entry.user, aborted ? SWITCHML_EABORTED : SWITCHML_OK, "closed");
            lock.lock();
        }
    }

    const Wire wire_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Entry> jobs_;
    std::atomic<bool> closing_{false};
    std::thread thread_;
};

struct Outcome {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    switchml_status status = SWITCHML_OK;
    std::string reason;

    static void on_done(void *user, switchml_status status, const char *message) {
        auto *const self = static_cast<Outcome *>(user);
        const std::lock_guard<std::mutex> lock(self->mutex);
        self->done = true;
        self->status = status;
        self->reason = message;
        self->ended.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        ended.wait(lock, [this] { return done; });
    }
};

// One rank of the test's host.
struct Rank {
    Meeting &meeting;
    std::size_t index;
    std::size_t size;
    std::unique_ptr<HostReduction> reduction;
    Mirror *mirror = nullptr;

    void submit(void *data, uint64_t numel, Dtype dtype, Outcome &outcome) const {
        std::string reason;
        const switchml_status status = reduction->submit(data, numel, dtype, &Outcome::on_done, &outcome, reason);
        if (status != SWITCHML_OK) {
            Outcome::on_done(&outcome, status, reason.c_str());
        }
    }
    switchml_status reduce(void *data, uint64_t numel, Dtype dtype, std::string *reason = nullptr) const {
        Outcome outcome;
        submit(data, numel, dtype, outcome);
        outcome.wait();
        if (reason != nullptr) {
            *reason = outcome.reason;
        }
        return outcome.status;
    }
};

inline void wait_for_all(Meeting &meeting, std::size_t arrivals) {
    ++meeting.ready;
    while (meeting.ready.load() < static_cast<int>(arrivals)) {
        std::this_thread::yield();
    }
}

inline std::shared_ptr<HostBoard> meet(Meeting &meeting, std::size_t index, std::size_t size) {
    std::vector<int> ranks(size);
    std::iota(ranks.begin(), ranks.end(), 10);  // other numbers than indexes
    meeting.processes[index] = getpid();
    std::shared_ptr<HostBoard> board;
    if (index == 0) {
        board = HostBoard::create(ranks);
        std::strcpy(meeting.address, board->address().c_str());
    } else {
        while (meeting.ready.load() == 0) {
            std::this_thread::yield();
        }
        board = HostBoard::attach(meeting.address, ranks, index);
    }
    wait_for_all(meeting, size);
    board->watch(std::vector<int>(meeting.processes, meeting.processes + size));
    wait_for_all(meeting, 2 * size);  // nobody ends before all watch
    return board;
}

// Runs the ranks as processes and returns how each ended, as waitpid says.
inline std::vector<int> run_ranks(std::size_t size, const HostReductionOptions &options, Wire wire,
                                  const std::function<void(Rank &)> &body) {
    void *const page = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto &meeting = *static_cast<Meeting *>(page);
    std::vector<pid_t> children;
    for (std::size_t index = 0; index < size; ++index) {
        const pid_t child = fork();
        if (child == 0) {
            Rank rank{meeting, index, size, nullptr};
            auto board = meet(meeting, index, size);
            const bool on_wire = index == 0 && wire != Wire::kNone;
            std::unique_ptr<Mirror> mirror(on_wire ? new Mirror(wire) : nullptr);
            rank.mirror = mirror.get();
            rank.reduction = std::make_unique<HostReduction>(std::move(board), std::move(mirror), options);
            body(rank);
            rank.reduction->close();
            std::_Exit(0);
        }
        children.push_back(child);
    }
    std::vector<int> ends;
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        ends.push_back(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
    }
    munmap(page, sizeof(Meeting));
    return ends;
}

}  // namespace host_test
