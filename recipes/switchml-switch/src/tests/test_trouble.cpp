// SPDX-License-Identifier: BSD-3-Clause
//
// Loss, death and disagreement: right sums or a clear error in bounded time,
// never a hang.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "completion.hpp"
#include "switch_process.hpp"
#include "wire/check.hpp"

using namespace switchml;
using namespace switchml::testing;

namespace {

using Clock = std::chrono::steady_clock;
using Ints = std::vector<std::int32_t>;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void submit(const Context &context, Ints &values, Job &job) {
    const switchml_status status = switchml_allreduce_submit(context.get(), values.data(), values.data(), values.size(),
                                                             SWITCHML_INT32, Job::callback, &job);
    if (status != SWITCHML_OK) throw OpenFailed(status, switchml_last_error());
}

void quick(switchml_config &config) {
    config.connect_timeout_ms = 2000;
    config.job_timeout_ms = 500;
}

template <class T>
void check_exact_rounds(Workers &workers, switchml_dtype dtype, int rounds, std::size_t numel) {
    std::mt19937 random(5);
    for (int round = 0; round < rounds; ++round) {
        std::vector<std::vector<T>> values(workers.contexts.size(), std::vector<T>(numel));
        std::vector<T> sums(numel, 0);
        for (auto &own : values) {
            for (std::size_t i = 0; i < numel; ++i) {
                own[i] = static_cast<T>(static_cast<int>(random() % 2001) - 1000);
                sums[i] += own[i];
            }
        }
        std::vector<Job> jobs(values.size());
        for (std::size_t rank = 0; rank < values.size(); ++rank) {
            CHECK_EQ(switchml_allreduce_submit(workers.contexts[rank].get(), values[rank].data(), values[rank].data(),
                                               numel, dtype, Job::callback, &jobs[rank]),
                     SWITCHML_OK);
        }
        for (auto &job : jobs) CHECK_EQ(job.wait().status, SWITCHML_OK);
        for (const auto &own : values) {
            for (std::size_t i = 0; i < numel; ++i) {
                if constexpr (std::is_same_v<T, float>)
                    CHECK(std::abs(own[i] - sums[i]) < 1e-4F);
                else
                    CHECK_EQ(own[i], sums[i]);
            }
        }
    }
}

OpenFailed open_failure(const std::string &controller, std::uint32_t rank, std::uint32_t count,
                        const Configure &configure) {
    try {
        Workers::open_rank(controller, rank, count, configure);
    } catch (const OpenFailed &failure) {
        return failure;
    }
    throw check::Failed("the session opened");
}

std::future<OpenFailed> open_failure_async(const Switch &net, std::uint32_t rank, std::uint32_t count,
                                           const Configure &configure) {
    return std::async(std::launch::async,
                      [&net, rank, count, configure] { return open_failure(net.controller, rank, count, configure); });
}

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
    CHECK_MENTIONS(result.message, "0 of 4 packets");
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

TEST(a_missing_worker_is_a_timeout_of_the_session) {
    Switch net;
    const OpenFailed failure = open_failure(net.controller, 0, 2, [](switchml_config &config) {
        config.connect_timeout_ms = 300;
        config.job_timeout_ms = 300;
    });
    CHECK_EQ(failure.status, SWITCHML_ETIMEDOUT);
    CHECK_MENTIONS(failure.what(), "2 workers");
}

TEST(a_refused_worker_fails_all_at_once_with_its_reason) {
    Switch net;
    const auto start = Clock::now();
    const std::string same = private_address(2);
    auto first = open_failure_async(net, 0, 2, {});
    auto second = open_failure_async(net, 1, 2, [&](switchml_config &config) {
        config.local_address = same.c_str();
        config.worker_port = 4001;
    });
    const OpenFailed failures[] = {first.get(), second.get()};
    for (const auto &failure : failures) {
        CHECK_EQ(failure.status, SWITCHML_EREFUSED);
        CHECK_MENTIONS(failure.what(), "rank 1 has the address of rank 0");
    }
    CHECK(seconds_since(start) < 5);
}

TEST(too_many_workers_are_refused) {
    Switch net({"--max-workers", "1"});
    const OpenFailed failure = open_failure(net.controller, 0, 2, {});
    CHECK_EQ(failure.status, SWITCHML_EREFUSED);
    CHECK_MENTIONS(failure.what(), "expected 1 to 1");
}

TEST(different_parameters_are_named) {
    Switch net;
    auto first = std::async(std::launch::async, [&] { return open_failure(net.controller, 0, 2, quick); });
    const OpenFailed failure = open_failure(net.controller, 1, 2, [](switchml_config &config) {
        quick(config);
        config.max_outstanding_packets = 64;
    });
    CHECK_EQ(failure.status, SWITCHML_ECONFIG);
    CHECK_MENTIONS(failure.what(), "max_outstanding_packets=64");
    CHECK_MENTIONS(failure.what(), "max_outstanding_packets=256");
    CHECK_EQ(first.get().status, SWITCHML_ETIMEDOUT);
}

TEST(a_dead_session_does_not_block_the_next) {
    Switch net;
    for (int round = 0; round < 3; ++round) {
        // Rank 0 of a session whose other worker never comes gives up or is still waiting when the next one starts.
        const Configure brief = [](switchml_config &config) {
            config.connect_timeout_ms = 500;
            config.job_timeout_ms = 100;
        };
        const OpenFailed failure = open_failure(net.controller, 0, 2, brief);
        CHECK_EQ(failure.status, SWITCHML_ETIMEDOUT);
        Workers workers(net, 2);
        check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 1, 1000);
    }
    CHECK_EQ(json_number(net.stop(), "sessions_opened"), 3U);
}

TEST(a_session_after_an_aborted_one_starts_clean) {
    Switch net;
    for (int round = 0; round < 5; ++round) {
        Workers workers(net, 2);
        check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 1, 1000);
        Ints values(100000, 1);
        Job job;
        submit(workers.contexts[0], values, job);  // leaves half-finished slots behind
        while (stats_of(workers.contexts[0]).packets_sent < 8) std::this_thread::yield();
        switchml_abort(workers.contexts[0].get());
        job.wait();
    }
}

TEST(a_second_switch_on_the_same_ports_says_so) {
    Switch net;
    const std::string port = net.controller.substr(net.controller.find(':') + 1);
    Process same_data({SWITCHML_SWITCH_EXECUTABLE, "--address", private_address(1), "--controller-port", "0"});
    CHECK_EQ(same_data.wait().code, 1);
    Process same_controller(
        {SWITCHML_SWITCH_EXECUTABLE, "--address", private_address(1), "--port", "0", "--controller-port", port});
    CHECK_EQ(same_controller.wait().code, 1);
}

TEST(another_data_port_needs_no_setting) {
    Switch net({"--port", "0"});
    CHECK(net.data.find(":48864") == std::string::npos);
    Workers workers(net, 2);
    check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 1, 1000);
}

TEST(the_stats_file_is_fresh_at_each_session_and_at_the_end) {
    const std::string path = "stats-" + std::to_string(getpid()) + ".json";
    const auto read = [&] {
        std::string line;
        std::ifstream file(path);
        std::getline(file, line);
        return line;
    };
    Switch net({"--stats-file", path});
    CHECK_EQ(json_number(read(), "sessions_opened"), 0U);
    {
        Workers workers(net, 2);
        CHECK_EQ(json_number(read(), "sessions_opened"), 1U);
        check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 1, 1000);
    }
    net.stop();
    CHECK_EQ(json_number(read(), "slots_completed"), 4U);
    std::remove(path.c_str());
}

CHECK_MAIN()
