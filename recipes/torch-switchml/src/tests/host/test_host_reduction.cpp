// SPDX-License-Identifier: BSD-3-Clause
//
// The reduction inside a host: right sums, and an end whatever happens. Each
// test is a name on the command line.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "host_ranks.h"

namespace host_test {

namespace {

using std::chrono::steady_clock;

const std::vector<uint64_t> kSizes{
    0, 1, 15, 4097, kStepNumel, kStepNumel + 1, kChunkNumel - 1, kChunkNumel, 3 * kChunkNumel + 70'001};
constexpr double kUnitRoundoff = 1.0 / (1 << 24);

double seconds_since(steady_clock::time_point start) {
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

template <typename Element>
uint64_t digest(const std::vector<Element> &values) {
    uint64_t result = 1469598103934665603U;
    for (const Element &value : values) {
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof(bits));
        result = (result ^ bits) * 1099511628211U;
    }
    return result;
}

// All ranks have the same bits.
void check_agreed(Rank &rank, uint64_t own) {
    rank.meeting.sums[rank.index] = own;
    int32_t nothing = 0;
    CHECK(rank.reduce(&nothing, 1, Dtype::kInt32) == SWITCHML_OK);  // a barrier: every sum is there
    for (std::size_t other = 0; other < rank.size; ++other) {
        CHECK(rank.meeting.sums[other] == own);
    }
    CHECK(rank.reduce(&nothing, 1, Dtype::kInt32) == SWITCHML_OK);  // and has been looked at
}

// Magnitudes of many orders, so that sums round in every way.
std::vector<float> floats_of(std::size_t rank, uint64_t numel, uint32_t seed) {
    std::mt19937 generator(seed * 64 + static_cast<uint32_t>(rank));
    std::vector<float> values(numel);
    for (float &value : values) {
        const uint32_t bits = generator();
        value = std::ldexp(static_cast<float>(bits >> 8) - (1 << 23), static_cast<int>(bits % 41) - 43);
    }
    return values;
}

void floats_are_within_the_bound(Rank &rank) {
    for (const uint64_t numel : kSizes) {
        const auto seed = static_cast<uint32_t>(numel % 1000);
        std::vector<double> exact(numel);
        std::vector<double> magnitudes(numel);
        for (std::size_t other = 0; other < rank.size; ++other) {
            const auto values = floats_of(other, numel, seed);
            for (uint64_t index = 0; index < numel; ++index) {
                exact[index] += values[index];
                magnitudes[index] += std::fabs(values[index]);
            }
        }
        auto values = floats_of(rank.index, numel, seed);
        CHECK(rank.reduce(values.data(), numel, Dtype::kFloat32) == SWITCHML_OK);
        const double additions = static_cast<double>(rank.size - 1) * kUnitRoundoff;
        const double factor = additions / (1 - additions);
        for (uint64_t index = 0; index < numel; ++index) {
            CHECK(std::fabs(values[index] - exact[index]) <= factor * magnitudes[index]);
        }
        check_agreed(rank, digest(values));
    }
}

void integers_are_exact_and_wrap(Rank &rank) {
    for (const uint64_t numel : kSizes) {
        std::vector<uint32_t> expected(numel);
        std::vector<uint32_t> values(numel);
        for (std::size_t other = 0; other < rank.size; ++other) {
            std::mt19937 generator(static_cast<uint32_t>(numel * 8 + other));
            for (uint64_t index = 0; index < numel; ++index) {
                const auto value = static_cast<uint32_t>(generator());
                expected[index] += value;
                if (other == rank.index) {
                    values[index] = value;
                }
            }
        }
        CHECK(rank.reduce(values.data(), numel, Dtype::kInt32) == SWITCHML_OK);
        CHECK(values == expected);
    }
}

// Also of tensors that are large enough to go past the caches, in whole lines.
void results_fit_tensors_at_any_address(Rank &rank) {
    constexpr int32_t kGuard = -1;
    for (const uint64_t numel : {uint64_t{100}, kChunkNumel + 3}) {
        for (const std::size_t offset : {1U, 2U, 15U}) {
            std::vector<int32_t> memory(offset + numel + 16, kGuard);
            const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(offset);
            const auto end = begin + static_cast<std::ptrdiff_t>(numel);
            std::iota(begin, end, 0);
            CHECK(rank.reduce(&*begin, numel, Dtype::kInt32) == SWITCHML_OK);
            const auto size = static_cast<int32_t>(rank.size);
            for (uint64_t index = 0; index < numel; ++index) {
                CHECK(memory[offset + index] == size * static_cast<int32_t>(index));
            }
            const auto untouched = [](int32_t value) { return value == kGuard; };
            CHECK(std::all_of(memory.begin(), begin, untouched) && std::all_of(end, memory.end(), untouched));
        }
    }
}

void infinities_and_nans_stay(Rank &rank) {
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> values(3, 1);
    if (rank.index == 1) {
        values = {infinity, std::nanf(""), std::numeric_limits<float>::denorm_min()};
    }
    CHECK(rank.reduce(values.data(), values.size(), Dtype::kFloat32) == SWITCHML_OK);
    CHECK(values[0] == infinity);
    CHECK(std::isnan(values[1]));
    CHECK(values[2] == static_cast<float>(rank.size - 1));
}

void many_jobs_keep_their_order(Rank &rank) {
    constexpr uint64_t kJobs = 200;
    std::vector<std::vector<int32_t>> buffers;
    std::deque<Outcome> outcomes;
    for (uint64_t job = 0; job < kJobs; ++job) {
        buffers.emplace_back(1 + job * job * 7 % 90'000, static_cast<int32_t>(job));
    }
    for (auto &buffer : buffers) {
        rank.submit(buffer.data(), buffer.size(), Dtype::kInt32, outcomes.emplace_back());
    }
    for (uint64_t job = 0; job < kJobs; ++job) {
        outcomes[job].wait();
        CHECK(outcomes[job].status == SWITCHML_OK);
        const auto expected = static_cast<int32_t>(job * rank.size);
        CHECK(buffers[job] == std::vector<int32_t>(buffers[job].size(), expected));
    }
}

// A job that reads what one ahead of it writes waits for that, on the one rank that shares memory, too.
void jobs_over_the_same_memory_follow_each_other(Rank &rank) {
    constexpr std::size_t kJobs = 12;
    constexpr uint64_t kNumel = 3 * kStepNumel;
    const bool shares = rank.index != 1;
    const auto size = static_cast<int32_t>(rank.size);
    std::vector<int32_t> together(kNumel + kJobs - 1, 1);
    std::vector<std::vector<int32_t>> apart(kJobs, std::vector<int32_t>(kNumel, 0));
    std::deque<Outcome> outcomes;
    for (std::size_t job = 0; job < kJobs; ++job) {
        rank.submit(shares ? together.data() + job : apart[job].data(), kNumel, Dtype::kInt32, outcomes.emplace_back());
    }
    for (Outcome &outcome : outcomes) {
        outcome.wait();
        CHECK(outcome.status == SWITCHML_OK);
    }
    if (!shares) {
        return;
    }
    for (std::size_t index = 0; index < together.size(); ++index) {
        const std::size_t times = std::min({index + 1, kJobs, together.size() - index});
        CHECK(together[index] == std::lround(std::pow(size - 1, times)));  // of those that share
    }
}

// A job is done although the others have not come to the next one.
void a_job_waits_for_no_later_one(Rank &rank) {
    int32_t first = 1;
    int32_t second = 1;
    Outcome outcome;
    if (rank.index == 0) {
        Outcome later;
        rank.submit(&first, 1, Dtype::kInt32, outcome);
        rank.submit(&second, 1, Dtype::kInt32, later);
        outcome.wait();
        rank.meeting.go = 1;
        later.wait();
        CHECK(later.status == SWITCHML_OK);
        return;
    }
    CHECK(rank.reduce(&first, 1, Dtype::kInt32) == SWITCHML_OK);
    while (rank.meeting.go == 0) {
        std::this_thread::yield();
    }
    CHECK(rank.reduce(&second, 1, Dtype::kInt32) == SWITCHML_OK);
}

// What the wire compares: no two lists of jobs are cut alike.
void the_wires_jobs_tell_where_ours_end(Rank &rank) {
    std::vector<int32_t> values(2 * kChunkNumel + 5);
    for (const uint64_t numel : {2 * kChunkNumel + 5, kChunkNumel, uint64_t{0}, uint64_t{7}}) {
        CHECK(rank.reduce(values.data(), numel, Dtype::kInt32) == SWITCHML_OK);
    }
    if (rank.index == 0) {
        const std::vector<uint64_t> expected{kChunkNumel, kChunkNumel, 5, kChunkNumel, 0, 0, 7};
        CHECK(rank.mirror->sizes == expected);
    }
}

void check_failed(Rank &rank, uint64_t numel, Dtype dtype, switchml_status status, const std::string &text) {
    std::vector<int32_t> values(numel);
    std::string reason;
    const auto start = steady_clock::now();
    const switchml_status found = rank.reduce(values.data(), numel, dtype, &reason);
    if (found != status || reason.find(text) == std::string::npos) {
        std::fprintf(stderr, "status %d: %s\n", found, reason.c_str());
    }
    CHECK(found == status);
    CHECK(reason.find(text) != std::string::npos);
    CHECK(seconds_since(start) < 10);
    CHECK(rank.reduce(values.data(), numel, dtype) == status);  // and so it stays
}

void other_numel_is_named(Rank &rank) {
    const uint64_t numel = rank.index == 2 ? 100'000 : 3;
    check_failed(rank, numel, Dtype::kFloat32, SWITCHML_EMISMATCH, "rank 12: 100000 float32 elements as job 0");
    if (rank.mirror != nullptr) {
        CHECK(rank.mirror->sizes == std::vector<uint64_t>{kChunkNumel + 1});  // no other host's can be
    }
}

// They may submit their job only after this host has failed.
void other_hosts_learn_of_a_difference(Rank &rank) {
    const uint64_t numel = rank.index == 1 ? 100 : 3;
    check_failed(rank, numel, Dtype::kFloat32, SWITCHML_EMISMATCH, "rank 11: 100 float32 elements as job 0");
    rank.reduction->close();
    CHECK(rank.mirror == nullptr || rank.mirror->answered == 1);
}

void other_dtype_is_named(Rank &rank) {
    const Dtype dtype = rank.index == 1 ? Dtype::kInt32 : Dtype::kFloat32;
    check_failed(rank, 70'000, dtype, SWITCHML_EMISMATCH, "rank 11: 70000 int32 elements as job 0");
}

// The last rank, or with `first` the leader, ends somewhere in the middle of its jobs.
void killed(Rank &rank, std::size_t victim) {
    std::vector<int32_t> values(kChunkNumel);
    std::mt19937 generator(static_cast<uint32_t>(getpid()));
    const std::chrono::microseconds delay(generator() % 20'000);
    std::thread killer;
    if (rank.index == victim) {
        killer = std::thread([delay] {
            std::this_thread::sleep_for(delay);
            raise(SIGKILL);
        });
    }
    std::string reason;
    while (rank.reduce(values.data(), values.size(), Dtype::kInt32, &reason) == SWITCHML_OK) {
    }
    CHECK(reason.find("rank " + std::to_string(10 + victim) + " ended without leaving the group") != reason.npos);
}

void a_rank_that_left_is_named(Rank &rank) {
    if (rank.index != 1) {
        check_failed(rank, 10, Dtype::kInt32, SWITCHML_ETIMEDOUT, "rank 11 has left the group");
    }
}

void a_rank_that_does_not_join_is_named(Rank &rank) {
    if (rank.index == 2) {
        while (rank.meeting.go < 2) {
            std::this_thread::yield();
        }
        return;
    }
    check_failed(rank, 10, Dtype::kInt32, SWITCHML_ETIMEDOUT, "rank 12 of this host did not join");
    ++rank.meeting.go;
}

void abort_ends_all(Rank &rank) {
    if (rank.index == 1) {
        rank.reduction->abort("its limit has passed");
    }
    check_failed(rank, 10, Dtype::kInt32, SWITCHML_EABORTED, "rank 11 aborted its session: its limit has passed");
}

void a_wire_that_does_not_answer_is_an_error(Rank &rank) {
    check_failed(rank, 10, Dtype::kInt32, SWITCHML_ETIMEDOUT, "no result came through rank 10");
}

void others_memory_is_refused(Rank &rank) {
    const std::string other = std::to_string(getppid()) + ":0:00";
    std::string reason;
    try {
        HostBoard::attach(other, {0, 1}, 1);
    } catch (const std::runtime_error &error) {
        reason = error.what();
    }
    CHECK(!reason.empty());
    CHECK(rank.reduce(&reason[0], 1, Dtype::kInt32) == SWITCHML_OK);
}

struct Test {
    std::size_t ranks;
    std::function<void(Rank &)> body;
    uint32_t job_timeout_ms = 60'000;
    Wire wire = Wire::kMirror;
    int victim = -1;
};

const std::map<std::string, Test> &tests() {
    static const std::map<std::string, Test> all{
        {"floats_are_within_the_bound", {3, &floats_are_within_the_bound}},
        {"integers_are_exact_and_wrap", {4, &integers_are_exact_and_wrap}},
        {"a_single_rank", {1, &integers_are_exact_and_wrap}},
        {"results_fit_tensors_at_any_address", {3, &results_fit_tensors_at_any_address}},
        {"infinities_and_nans_stay", {2, &infinities_and_nans_stay}},
        {"many_jobs_keep_their_order", {4, &many_jobs_keep_their_order}},
        {"jobs_over_the_same_memory", {3, &jobs_over_the_same_memory_follow_each_other}},
        {"a_job_waits_for_no_later_one", {3, &a_job_waits_for_no_later_one}},
        {"the_wires_jobs_tell_where_ours_end", {2, &the_wires_jobs_tell_where_ours_end}},
        {"other_numel_is_named", {3, &other_numel_is_named}},
        {"other_hosts_learn_of_a_difference", {2, &other_hosts_learn_of_a_difference, 60'000, Wire::kLate}},
        {"other_dtype_is_named", {3, &other_dtype_is_named}},
        {"a_killed_rank_is_named", {4, [](Rank &rank) { killed(rank, 3); }, 60'000, Wire::kMirror, 3}},
        {"a_killed_leader_is_named", {4, [](Rank &rank) { killed(rank, 0); }, 60'000, Wire::kMirror, 0}},
        {"a_rank_that_left_is_named", {3, &a_rank_that_left_is_named}},
        {"a_rank_that_does_not_join_is_named", {3, &a_rank_that_does_not_join_is_named, 300}},
        {"abort_ends_all", {3, &abort_ends_all}},
        {"a_wire_that_does_not_answer_is_an_error", {2, &a_wire_that_does_not_answer_is_an_error, 300, Wire::kSilent}},
        {"one_host_alone_floats", {3, &floats_are_within_the_bound, 60'000, Wire::kNone}},
        {"one_host_alone_integers", {4, &integers_are_exact_and_wrap, 60'000, Wire::kNone}},
        {"one_host_alone_many_jobs", {4, &many_jobs_keep_their_order, 60'000, Wire::kNone}},
        {"one_host_alone_other_numel", {3, &other_numel_is_named, 60'000, Wire::kNone}},
        {"one_host_alone_killed", {4, [](Rank &rank) { killed(rank, 0); }, 60'000, Wire::kNone, 0}},
        {"others_memory_is_refused", {2, &others_memory_is_refused}},
    };
    return all;
}

int run(const std::string &name) {
    const Test &test = tests().at(name);
    const auto ends = run_ranks(test.ranks, {test.job_timeout_ms, ""}, test.wire, test.body);
    for (std::size_t index = 0; index < ends.size(); ++index) {
        const int expected = static_cast<int>(index) == test.victim ? -SIGKILL : 0;
        if (ends[index] != expected) {
            std::fprintf(stderr, "%s: rank of index %zu ended with %d\n", name.c_str(), index, ends[index]);
            return 1;
        }
    }
    return 0;
}

}  // namespace

}  // namespace host_test

int main(int argc, char **argv) {
    if (argc == 1) {
        for (const auto &[name, test] : host_test::tests()) {
            std::puts(name.c_str());
        }
        return 0;
    }
    return host_test::run(argv[1]);
}
