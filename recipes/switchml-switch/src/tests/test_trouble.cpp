// SPDX-License-Identifier: BSD-3-Clause
//
// Loss, death and disagreement amid jobs: right sums or a clear error in bounded time, never a hang.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "jobs.hpp"

using namespace switchml;
using namespace switchml::testing;

namespace {

void check_loss(const std::string &rate) {
    Switch net({"--drop-rate", rate, "--drop-result-rate", rate, "--seed", "42"});
    {
        Workers workers(net, 3);
        check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 2, 200003);
        check_exact_rounds<float>(workers, SWITCHML_FLOAT32, 2, 200003);
        CHECK(stats_of(workers.contexts[0]).packets_retransmitted > 0);
    }
    const std::string stats = net.stop();
    CHECK(json_number(stats, "injected") > 0);
    CHECK(json_number(stats, "results_dropped_injected") > 0);
}

}  // namespace

TEST(two_percent_loss) { check_loss("0.02"); }

TEST(five_percent_loss) { check_loss("0.05"); }

// Packets and results that are lost, come twice, late and out of order, all at once: what a slot's number is for.
TEST(a_mix_of_faults_spoils_no_sum) {
    Switch net({"--drop-rate", "0.02", "--drop-result-rate", "0.02", "--duplicate-rate", "0.1", "--delay-rate", "0.05",
                "--delay-ms", "20", "--reorder-rate", "0.2", "--seed", "11"});
    {
        Workers workers(net, 3, [](switchml_config &config) {
            config.max_outstanding_packets = 16;
            config.packet_numel = 64;
            config.retransmit_timeout_us = 2000;
        });
        for (const std::size_t numel : {1, 63, 640, 5000, 40003}) {
            check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 4, numel);
            check_exact_rounds<float>(workers, SWITCHML_FLOAT32, 4, numel);
        }
    }
    const std::string stats = net.stop();
    for (const char *direction : {"packets_injected", "results_injected"}) {
        const std::string counts = stats.substr(stats.find(direction));
        for (const char *fault : {"duplicated", "delayed", "reordered"}) CHECK(json_number(counts, fault) > 0);
    }
    CHECK(json_number(stats, "stale") > 0);
}

// Many short jobs in few slots: what a retransmission in the wrong round would spoil first.
TEST(heavy_loss_in_a_window_that_jobs_do_not_fill) {
    Switch net({"--drop-rate", "0.2", "--drop-result-rate", "0.2", "--seed", "7"});
    Workers workers(net, 3, [](switchml_config &config) {
        config.max_outstanding_packets = 4;
        config.packet_numel = 64;
        config.retransmit_timeout_us = 1000;
    });
    for (std::size_t packets = 1; packets <= 6; ++packets) {
        check_exact_rounds<float>(workers, SWITCHML_FLOAT32, 8, 64 * packets);
        check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 8, 64 * packets);
    }
}

TEST(loss_without_segment_offload) {
    setenv("SWITCHML_SEGMENT_OFFLOAD", "0", 1);
    Switch net({"--drop-rate", "0.02", "--drop-result-rate", "0.02"});
    Workers workers(net, 2);
    unsetenv("SWITCHML_SEGMENT_OFFLOAD");
    check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 2, 100003);
}

TEST(a_switch_that_dies_fails_the_job_in_time) {
    Switch net;
    Workers workers(net, 1, quick);
    Ints values(1000, 1);
    Job job;
    submit(workers.contexts[0], values, job);
    CHECK_EQ(job.wait().status, SWITCHML_OK);
    net.kill();
    const auto start = Clock::now();
    Job lost;
    Job behind;
    submit(workers.contexts[0], values, lost);
    submit(workers.contexts[0], values, behind);
    const Result result = lost.wait();
    CHECK_EQ(result.status, SWITCHML_ETIMEDOUT);
    CHECK(seconds_since(start) < 3);
    CHECK_MENTIONS(result.message, net.data);
    CHECK_MENTIONS(result.message, "0 of 5 packets");
    const Result follower = behind.wait();
    CHECK_EQ(follower.status, SWITCHML_ETIMEDOUT);
    CHECK_MENTIONS(follower.message, "an earlier job");
    CHECK_EQ(switchml_allreduce_submit(workers.contexts[0].get(), values.data(), values.data(), 1, SWITCHML_INT32,
                                       Job::callback, &job),
             SWITCHML_ETIMEDOUT);
    CHECK_MENTIONS(switchml_last_error(), "the session has ended");
    CHECK_EQ(stats_of(workers.contexts[0]).jobs_failed, 2U);
}

TEST(a_switch_killed_amid_traffic_fails_all_workers_in_time) {
    Switch net;
    Workers workers(net, 2, quick);
    Ints values[2] = {Ints(8 << 20, 1), Ints(8 << 20, 1)};
    Job jobs[2];
    for (int rank = 0; rank < 2; ++rank) submit(workers.contexts[rank], values[rank], jobs[rank]);
    while (stats_of(workers.contexts[0]).packets_received < 100) std::this_thread::yield();
    net.kill();
    const auto start = Clock::now();
    for (auto &job : jobs) CHECK_EQ(job.wait().status, SWITCHML_ETIMEDOUT);
    CHECK(seconds_since(start) < 3);
}

TEST(a_worker_that_dies_fails_the_others_in_time) {
    Switch net;
    Workers workers(net, 2, quick);
    workers.contexts[1].reset();
    Ints values(1000, 1);
    Job job;
    const auto start = Clock::now();
    submit(workers.contexts[0], values, job);
    CHECK_EQ(job.wait().status, SWITCHML_ETIMEDOUT);
    CHECK(seconds_since(start) < 3);
}

TEST(a_late_worker_is_waited_for) {
    Switch net;
    Workers workers(net, 2);
    Ints early(100000, 1);
    Ints late(100000, 2);
    Job first;
    Job second;
    submit(workers.contexts[0], early, first);
    while (stats_of(workers.contexts[0]).packets_retransmitted == 0) std::this_thread::yield();
    submit(workers.contexts[1], late, second);
    CHECK_EQ(first.wait().status, SWITCHML_OK);
    CHECK_EQ(second.wait().status, SWITCHML_OK);
    CHECK(early == Ints(100000, 3) && late == early);
}

TEST(abort_ends_pending_jobs_at_once) {
    Switch net;
    Workers workers(net, 2);
    Ints values(1000, 1);
    Job jobs[3];
    for (auto &job : jobs) submit(workers.contexts[0], values, job);  // the other worker never comes
    const auto start = Clock::now();
    CHECK_EQ(switchml_abort(workers.contexts[0].get()), SWITCHML_OK);
    for (auto &job : jobs) {
        const Result result = job.wait();
        CHECK_EQ(result.status, SWITCHML_EABORTED);
        CHECK_MENTIONS(result.message, "switchml_abort");
    }
    CHECK(seconds_since(start) < 1);
    CHECK_EQ(switchml_abort(workers.contexts[0].get()), SWITCHML_OK);
    Job refused;
    CHECK_EQ(switchml_allreduce_submit(workers.contexts[0].get(), values.data(), values.data(), 1, SWITCHML_INT32,
                                       Job::callback, &refused),
             SWITCHML_EABORTED);
}

TEST(closing_ends_pending_jobs_at_once) {
    Switch net;
    Workers workers(net, 2);
    Ints values(1000, 1);
    Job job;
    submit(workers.contexts[0], values, job);
    const auto start = Clock::now();
    workers.contexts[0].reset();
    CHECK(seconds_since(start) < 1);
    const Result result = job.wait();
    CHECK_EQ(result.status, SWITCHML_EABORTED);
    CHECK_MENTIONS(result.message, "switchml_close");
}

TEST(who_is_missing_is_said_at_the_time_limit) {
    Switch net({"--lease-ms", "300"});
    Workers workers(net, 2, [](switchml_config &config) { config.job_timeout_ms = 2000; });
    workers.contexts[1].reset();
    const Result result = result_of_a_job(workers.contexts[0]);
    CHECK_EQ(result.status, SWITCHML_ETIMEDOUT);
    CHECK_MENTIONS(result.message, "rank 1 has ended its session");
}

namespace {

constexpr double kSoonS = 6;  // far below patient's limit, with room for a loaded machine

}  // namespace

// Seen: where the limit of a job is its process group's half an hour, this was a hang.
TEST(a_killed_worker_ends_the_others_jobs_within_the_lease) {
    Switch net({"--lease-ms", "1000"});
    const auto dying = dying_worker(net, 3, 1, 2);
    const Context context = Workers::open_rank(net.controller, 0, 2, patient);
    const auto start = Clock::now();
    Ints values(1000, 1);
    Job pending;
    Job behind;
    submit(context, values, pending);
    submit(context, values, behind);
    const Result result = pending.wait();
    CHECK_EQ(result.status, SWITCHML_ETIMEDOUT);
    CHECK_MENTIONS(result.message, "rank 1 was last heard of ");
    CHECK_MENTIONS(result.message, "0 of 5 packets");
    CHECK_EQ(behind.wait().status, SWITCHML_ETIMEDOUT);
    CHECK(seconds_since(start) < kSoonS);
    CHECK(seconds_since(start) > 0.9);  // not before the lease is over
}

TEST(a_worker_that_ended_ends_the_others_jobs) {
    Switch net({"--lease-ms", "1000"});
    Workers workers(net, 2, patient);
    workers.contexts[1].reset();
    const auto start = Clock::now();
    const Result result = result_of_a_job(workers.contexts[0]);
    CHECK_EQ(result.status, SWITCHML_ETIMEDOUT);
    CHECK_MENTIONS(result.message, "rank 1 has ended its session");
    CHECK(seconds_since(start) < kSoonS);
}

// Its packets are all in, so what is left is between the switch and the others.
TEST(a_worker_that_ended_after_its_share_does_not_fail_the_others) {
    Switch net({"--lease-ms", "300", "--drop-result-rate", "0.5", "--seed", "3"});
    Workers workers(net, 2, [](switchml_config &config) {
        patient(config);
        if (config.rank == 1) config.retransmit_timeout_us = 300000;  // it learns of the other's end between two tries
    });
    Ints values[2] = {Ints(1000, 1), Ints(1000, 1)};
    Job jobs[2];
    for (int rank = 0; rank < 2; ++rank) submit(workers.contexts[rank], values[rank], jobs[rank]);
    CHECK_EQ(jobs[0].wait().status, SWITCHML_OK);
    workers.contexts[0].reset();
    CHECK_EQ(jobs[1].wait().status, SWITCHML_OK);
    CHECK(values[1] == Ints(1000, 2));
}

TEST(a_slow_worker_is_waited_for) {
    Switch net({"--lease-ms", "600"});
    Workers workers(net, 2, patient);
    Ints early(1000, 1);
    Ints late(1000, 2);
    Job first;
    Job second;
    submit(workers.contexts[0], early, first);
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));  // three leases, in which only renewals come
    submit(workers.contexts[1], late, second);
    CHECK_EQ(first.wait().status, SWITCHML_OK);
    CHECK_EQ(second.wait().status, SWITCHML_OK);
    CHECK(early == Ints(1000, 3) && late == early);
}

TEST(a_dead_switch_is_noticed) {
    Switch net({"--lease-ms", "1000"});
    Workers workers(net, 2, patient);
    Ints values[2] = {Ints(1000, 1), Ints(1000, 1)};
    Job jobs[2];
    submit(workers.contexts[0], values[0], jobs[0]);
    net.kill();
    const auto start = Clock::now();
    submit(workers.contexts[1], values[1], jobs[1]);
    for (auto &job : jobs) {
        const Result result = job.wait();
        CHECK_EQ(result.status, SWITCHML_EUNREACHABLE);
        CHECK_MENTIONS(result.message, net.controller + " has not answered for ");
    }
    CHECK(seconds_since(start) < kSoonS);
}

namespace {

void check_mismatch(std::size_t first, switchml_dtype first_type, std::size_t second, switchml_dtype second_type,
                    const std::string &mention) {
    Switch net;
    Workers workers(net, 2, unhurried);
    check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 1, 1000);
    Ints values[2] = {Ints(first, 1), Ints(second, 1)};
    const switchml_dtype types[2] = {first_type, second_type};
    Job jobs[2];
    for (int rank = 0; rank < 2; ++rank) {
        CHECK_EQ(switchml_allreduce_submit(workers.contexts[rank].get(), values[rank].data(), values[rank].data(),
                                           values[rank].size(), types[rank], Job::callback, &jobs[rank]),
                 SWITCHML_OK);
    }
    for (auto &job : jobs) {
        const Result result = job.wait();
        CHECK_EQ(result.status, SWITCHML_EMISMATCH);
        CHECK_MENTIONS(result.message, mention);
    }
}

}  // namespace

TEST(ranks_with_different_counts_of_elements_all_fail) {
    check_mismatch(1000, SWITCHML_INT32, 1001, SWITCHML_INT32, "rank 1: 1001 int32 elements");
    check_mismatch(1000, SWITCHML_FLOAT32, 100000, SWITCHML_FLOAT32, "rank 0: 1000 float32 elements");
    check_mismatch(0, SWITCHML_INT32, 1, SWITCHML_INT32, "rank 0: 0 int32 elements");
}

TEST(ranks_with_different_types_all_fail) {
    check_mismatch(1000, SWITCHML_INT32, 1000, SWITCHML_FLOAT32, "rank 1: 1000 float32 elements");
    check_mismatch(70000, SWITCHML_FLOAT32, 70000, SWITCHML_INT32, "rank 0: 70000 float32 elements");
}

TEST(ranks_that_call_in_another_order_all_fail) {
    Switch net;
    Workers workers(net, 2, unhurried);
    Ints small[2] = {Ints(10, 1), Ints(10, 1)};
    Ints large[2] = {Ints(5000, 1), Ints(5000, 1)};
    Job jobs[4];
    submit(workers.contexts[0], small[0], jobs[0]);
    submit(workers.contexts[0], large[0], jobs[1]);
    submit(workers.contexts[1], large[1], jobs[2]);
    submit(workers.contexts[1], small[1], jobs[3]);
    for (auto &job : jobs) CHECK_EQ(job.wait().status, SWITCHML_EMISMATCH);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
