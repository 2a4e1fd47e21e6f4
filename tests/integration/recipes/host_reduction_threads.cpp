// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks of a host as threads of one process, for the thread sanitizer: it sees neither other processes nor that two
// mappings are of the same memory. So HostMemory is another one here, which all ranks have at the same address.
#include "host_memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/host/host_ranks.h"

namespace torch_switchml {

namespace {

void *shared = nullptr;

}  // namespace

std::unique_ptr<HostMemory> HostMemory::create(std::size_t bytes) {
    shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::unique_ptr<HostMemory> memory(new HostMemory());
    memory->data_ = shared;
    memory->address_ = "here";
    return memory;
}

std::unique_ptr<HostMemory> HostMemory::attach(const std::string &address, std::size_t) {
    std::unique_ptr<HostMemory> memory(new HostMemory());
    memory->data_ = shared;
    memory->address_ = address;
    return memory;
}

void HostMemory::seal() {}

HostMemory::~HostMemory() = default;  // others may still use it; a round of the test leaves it

}  // namespace torch_switchml

namespace host_test {

namespace {

constexpr int kJobs = 12;
constexpr uint64_t kSizes[] = {0, 1, 4097, kStepNumel + 1, kChunkNumel - 1, 3 * kChunkNumel + 70'001};

void reduce_one_by_one(const Rank &rank) {
    for (const uint64_t numel : kSizes) {
        std::vector<int32_t> values(numel, static_cast<int32_t>(rank.index + 1));
        CHECK(rank.reduce(values.data(), numel, Dtype::kInt32) == SWITCHML_OK);
        const auto expected = static_cast<int32_t>(rank.size * (rank.size + 1) / 2);
        for (const int32_t value : values) {
            CHECK(value == expected);
        }
    }
}

void reduce_several_at_once(const Rank &rank) {
    std::vector<std::vector<float>> values(kJobs, std::vector<float>(kStepNumel + 5, 0.5F));
    std::deque<Outcome> outcomes(kJobs);
    for (int job = 0; job < kJobs; ++job) {
        rank.submit(values[job].data(), values[job].size(), Dtype::kFloat32, outcomes[job]);
    }
    for (int job = 0; job < kJobs; ++job) {
        outcomes[job].wait();
        CHECK(outcomes[job].status == SWITCHML_OK);
        for (const float value : values[job]) {
            CHECK(value == 0.5F * static_cast<float>(rank.size));
        }
    }
}

// All of a host hear of it while they are at work.
void fail_at_once(const Rank &rank) {
    std::vector<float> values(kChunkNumel, 1);
    Outcome outcome;
    rank.submit(values.data(), values.size(), Dtype::kFloat32, outcome);
    rank.reduction->abort("for a test");
    outcome.wait();
    std::string reason;
    CHECK(rank.reduce(values.data(), values.size(), Dtype::kFloat32, &reason) != SWITCHML_OK);
    CHECK(reason.find("for a test") != std::string::npos);
}

void run(std::size_t size, Wire wire) {
    Meeting meeting{};
    std::vector<std::thread> threads;
    for (std::size_t index = 0; index < size; ++index) {
        threads.emplace_back([&meeting, index, size, wire] {
            Rank rank{meeting, index, size, nullptr};
            auto board = meet(meeting, index, size);
            std::unique_ptr<Mirror> mirror(index == 0 && wire != Wire::kNone ? new Mirror(wire) : nullptr);
            rank.mirror = mirror.get();
            rank.reduction =
                std::make_unique<HostReduction>(std::move(board), std::move(mirror), HostReductionOptions{});
            reduce_one_by_one(rank);
            reduce_several_at_once(rank);
            fail_at_once(rank);
            rank.reduction->close();
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

}  // namespace

}  // namespace host_test

int main() {
    for (const std::size_t size : {2U, 3U, 4U}) {
        host_test::run(size, host_test::Wire::kNone);
        host_test::run(size, host_test::Wire::kMirror);
    }
    std::puts("right");
}
