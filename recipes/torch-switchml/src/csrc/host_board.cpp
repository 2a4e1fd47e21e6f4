// SPDX-License-Identifier: BSD-3-Clause
#include "host_board.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace torch_switchml {

namespace {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

constexpr int kLooksAtFailure = 100'000;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kStagingBytes = kStepsInStaging * kStepNumel * kElementBytes;
constexpr std::size_t kResultBytes = kChunkNumel * kElementBytes;
constexpr std::size_t kBoardBytes = (sizeof(BoardMemory) + kPageBytes - 1) / kPageBytes * kPageBytes;
constexpr std::size_t kMemoryPerRank = 64U << 20;
static_assert(kBoardBytes + kStagingBytes + kChunksInResults * kResultBytes <= kMemoryPerRank,
              "what is promised of memory beyond the tensors holds for a single rank too");

std::size_t bytes_for(const std::vector<int> &ranks) {
    if (ranks.size() > kMaxHostRanks) {
        throw std::runtime_error(std::to_string(ranks.size()) + " ranks on this host, at most " +
                                 std::to_string(kMaxHostRanks) + " can share memory");
    }
    return kBoardBytes + kChunksInResults * kResultBytes + ranks.size() * kStagingBytes;
}

long futex(std::atomic<uint32_t> &word, int operation, uint32_t value, const timespec *limit) {
    return syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), operation, value, limit, nullptr, 0);
}

}  // namespace

std::shared_ptr<HostBoard> HostBoard::create(std::vector<int> ranks) {
    auto memory = HostMemory::create(bytes_for(ranks));
    return std::shared_ptr<HostBoard>(new HostBoard(std::move(memory), std::move(ranks), 0));
}

std::shared_ptr<HostBoard> HostBoard::attach(const std::string &address, std::vector<int> ranks, std::size_t index) {
    auto memory = HostMemory::attach(address, bytes_for(ranks));
    return std::shared_ptr<HostBoard>(new HostBoard(std::move(memory), std::move(ranks), index));
}

// The memory comes as zeros, which is where all begins.
HostBoard::HostBoard(std::unique_ptr<HostMemory> memory, std::vector<int> ranks, std::size_t index)
    : memory_(std::move(memory)),
      ranks_(std::move(ranks)),
      index_(index),
      board_(static_cast<BoardMemory *>(memory_->data())) {}

HostBoard::~HostBoard() {
    for (const int peer : peers_) {
        if (peer >= 0) {
            close(peer);
        }
    }
}

void HostBoard::watch(const std::vector<int> &processes) {
    for (std::size_t index = 0; index < processes.size(); ++index) {
        int peer = -1;
        if (index != index_) {
            peer = static_cast<int>(syscall(SYS_pidfd_open, processes[index], 0));
            if (peer < 0) {
                throw std::runtime_error("cannot watch process " + std::to_string(processes[index]) + ": " +
                                         std::generic_category().message(errno));
            }
        }
        peers_.push_back(peer);
    }
}

uint64_t HostBoard::reached_by_all(Counter counter) const {
    uint64_t least = UINT64_MAX;
    for (std::size_t index = 0; index < size(); ++index) {
        least = std::min(least, (progress(index).*counter).load());
    }
    return least;
}

// Sequentially consistent: of two ranks that advance at a time, one sees both.
void HostBoard::advance(Counter counter, uint64_t value) {
    (own().*counter).store(value);
    if (reached_by_all(counter) >= value) {
        ring_all();
    }
}

char *HostBoard::staging(std::size_t index, uint64_t step) const {
    char *const first = static_cast<char *>(memory_->data()) + kBoardBytes + kChunksInResults * kResultBytes;
    return first + index * kStagingBytes + step % kStepsInStaging * kStepNumel * kElementBytes;
}

char *HostBoard::result(uint64_t chunk) const {
    return static_cast<char *>(memory_->data()) + kBoardBytes + chunk % kChunksInResults * kResultBytes;
}

void HostBoard::ring(std::size_t index) const noexcept {
    RankProgress &rung = progress(index);
    rung.doorbell.fetch_add(1);
    if (rung.asleep.load() != 0) {
        futex(rung.doorbell, FUTEX_WAKE, INT_MAX, nullptr);
    }
}

void HostBoard::ring_all() const noexcept {
    for (std::size_t index = 0; index < size(); ++index) {
        if (index != index_) {
            ring(index);
        }
    }
}

void HostBoard::wait(uint32_t seen, int64_t limit_ns) const noexcept {
    RankProgress &mine = own();
    const timespec limit{static_cast<time_t>(limit_ns / 1'000'000'000), limit_ns % 1'000'000'000};
    mine.asleep.store(1);
    futex(mine.doorbell, FUTEX_WAIT, seen, &limit);  // at once where it has been rung since
    mine.asleep.store(0);
}

void HostBoard::fail(switchml_status status, const std::string &reason) noexcept {
    uint32_t none = 0;
    if (board_->failure.compare_exchange_strong(none, 1)) {
        board_->failure_status = status;
        const std::size_t length = std::min(reason.size(), sizeof(board_->failure_reason) - 1);
        std::memcpy(board_->failure_reason, reason.data(), length);
        board_->failure_reason[length] = '\0';
        board_->failure.store(2);
    }
    ring_all();
    ring(index_);
}

HostFailure HostBoard::failure() const {
    for (int looks = 0; board_->failure.load() != 2; ++looks) {
        if (looks == kLooksAtFailure) {  // its writer was killed at it
            return {SWITCHML_EIO, "a rank of this host failed"};
        }
        std::this_thread::yield();
    }
    return {static_cast<switchml_status>(board_->failure_status), board_->failure_reason};
}

std::size_t HostBoard::dead_peer() const {
    for (std::size_t index = 0; index < peers_.size(); ++index) {
        pollfd ended{peers_[index], POLLIN, 0};
        if (peers_[index] >= 0 && poll(&ended, 1, 0) == 1 && progress(index).left.load() == 0) {
            return index;
        }
    }
    return size();
}

void HostBoard::leave() noexcept {
    own().left.store(1);
    ring_all();
}

}  // namespace torch_switchml
