// SPDX-License-Identifier: BSD-3-Clause
//
// Jobs, sessions that fail to open, and workers that die, for the tests with a real switch.
#pragma once

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "completion.hpp"
#include "switch_process.hpp"
#include "wire/check.hpp"

namespace switchml::testing {

using Clock = std::chrono::steady_clock;
using Ints = std::vector<std::int32_t>;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

inline void submit(const Context &context, Ints &values, Job &job) {
    const switchml_status status = switchml_allreduce_submit(context.get(), values.data(), values.data(), values.size(),
                                                             SWITCHML_INT32, Job::callback, &job);
    if (status != SWITCHML_OK) throw OpenFailed(status, switchml_last_error());
}

// How a job of one worker ends.
inline Result result_of_a_job(const Context &context) {
    Ints values(1000, 1);
    Job job;
    submit(context, values, job);
    return job.wait();
}

inline void quick(switchml_config &config) {
    config.connect_timeout_ms = 2000;
    config.job_timeout_ms = 500;
}

// For jobs that are not to reach their limit of time, on a machine that is busy either.
inline void unhurried(switchml_config &config) {
    config.connect_timeout_ms = 2000;
    config.job_timeout_ms = 20000;
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

inline OpenFailed open_failure(const std::string &controller, std::uint32_t rank, std::uint32_t count,
                               const Configure &configure) {
    try {
        Workers::open_rank(controller, rank, count, configure);
    } catch (const OpenFailed &failure) {
        return failure;
    }
    throw check::Failed("the session opened");
}

inline std::future<OpenFailed> open_failure_async(const Switch &net, std::uint32_t rank, std::uint32_t count,
                                                  const Configure &configure) {
    return std::async(std::launch::async,
                      [&net, rank, count, configure] { return open_failure(net.controller, rank, count, configure); });
}

// Much time for a job, and little to learn that a worker has gone.
inline void patient(switchml_config &config) {
    config.job_timeout_ms = 30000;
    config.retransmit_timeout_us = 1000;
    config.job_name = "dead";
}

// Of the job 'dead'.
inline std::unique_ptr<Process> dying_worker(const Switch &net, std::uint32_t address, std::uint32_t rank,
                                             std::uint32_t count) {
    return std::make_unique<Process>(std::vector<std::string>{"/proc/self/exe", "--die-in-session", net.controller,
                                                              private_address(address), std::to_string(rank),
                                                              std::to_string(count)});
}

// Joins a session and ends without a word, as a process that is killed.
inline int die_in_session(const char *controller, const char *address, const char *rank, const char *num_workers) {
    switchml_config config{};
    config.struct_size = sizeof config;
    config.rank = static_cast<std::uint32_t>(std::stoul(rank));
    config.num_workers = static_cast<std::uint32_t>(std::stoul(num_workers));
    config.controller = controller;
    config.local_address = address;
    config.job_name = "dead";
    switchml_context *context = nullptr;
    if (switchml_open(&config, &context) != SWITCHML_OK) return 1;
    std::raise(SIGKILL);
    return 1;
}

// The tests, or a worker that dies: what main does.
inline int run_tests(int argc, char **argv) {
    if (argc == 6 && std::string(argv[1]) == "--die-in-session")
        return die_in_session(argv[2], argv[3], argv[4], argv[5]);
    return check::run(argc, argv);
}

}  // namespace switchml::testing
