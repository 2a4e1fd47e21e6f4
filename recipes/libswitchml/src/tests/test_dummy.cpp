// SPDX-License-Identifier: BSD-3-Clause
//
// The published client library behind the C ABI, with its dummy backend: jobs
// go through its context, scheduler, quantiser and threads; instead of a switch
// it multiplies by the number of workers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "completion.hpp"
#include "wire/check.hpp"

using namespace switchml::testing;

namespace {

switchml_config config_for(std::uint32_t num_workers, std::uint32_t num_threads = 1) {
    switchml_config config{};
    config.struct_size = sizeof config;
    config.num_workers = num_workers;
    config.num_threads = num_threads;
    return config;
}

template <class T>
Result reduce(const Context &context, const std::vector<T> &in, std::vector<T> &out, switchml_dtype dtype) {
    Job job;
    const switchml_status status =
        switchml_allreduce_submit(context.get(), in.data(), out.data(), in.size(), dtype, Job::callback, &job);
    if (status != SWITCHML_OK) throw std::runtime_error(switchml_last_error());
    return job.wait();
}

std::vector<float> random_floats(std::size_t count) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(count);
    for (float &value : values) value = uniform(random);
    return values;
}

}  // namespace

TEST(int32_sums_are_exact_whatever_the_size_and_threads) {
    for (const std::uint32_t threads : {1U, 2U, 4U}) {
        const Context context = open(config_for(3, threads));
        for (const std::size_t numel : {1U, 3U, 63U, 255U, 256U, 257U, 5000U, 300000U}) {
            std::vector<std::int32_t> in(numel);
            for (std::size_t i = 0; i < numel; ++i) in[i] = static_cast<std::int32_t>(i * 2654435761U);
            std::vector<std::int32_t> out(numel, -1);
            CHECK_EQ(reduce(context, in, out, SWITCHML_INT32).status, SWITCHML_OK);
            for (std::size_t i = 0; i < numel; ++i)
                CHECK_EQ(static_cast<std::uint32_t>(out[i]), 3U * static_cast<std::uint32_t>(in[i]));
        }
    }
}

TEST(float32_sums_are_within_the_documented_bound) {
    const Context context = open(config_for(2));
    for (const std::size_t numel : {1U, 17U, 256U, 65537U}) {
        const std::vector<float> in = random_floats(numel);
        std::vector<float> out(numel, 99);
        CHECK_EQ(reduce(context, in, out, SWITCHML_FLOAT32).status, SWITCHML_OK);
        for (std::size_t i = 0; i < numel; ++i) CHECK(std::fabs(out[i] - 2.0 * in[i]) <= 4 * 0x1p-32 + 2 * 0x1p-24);
    }
}

TEST(a_buffer_may_be_reduced_in_place) {
    const Context context = open(config_for(2));
    const std::vector<float> in = random_floats(10000);
    std::vector<float> buffer = in;
    CHECK_EQ(reduce(context, buffer, buffer, SWITCHML_FLOAT32).status, SWITCHML_OK);
    for (std::size_t i = 0; i < in.size(); ++i) CHECK(std::fabs(buffer[i] - 2.0 * in[i]) <= 1e-6);
}

TEST(infinities_and_nans_make_their_packet_nan) {
    const Context context = open(config_for(2));
    for (const float odd : {std::numeric_limits<float>::infinity(), std::nanf(""), -std::nanf("")}) {
        for (const std::size_t at : {0U, 5U, 255U, 256U, 261U}) {  // vectors, their end, and what is left over
            std::vector<float> in(262, 1.0F);
            in[at] = odd;
            std::vector<float> out(in.size(), 0);
            CHECK_EQ(reduce(context, in, out, SWITCHML_FLOAT32).status, SWITCHML_OK);
            for (std::size_t i = 0; i < in.size(); ++i) CHECK_EQ(std::isnan(out[i]), at / 256 == i / 256);
        }
    }
}

TEST(the_largest_and_the_smallest_values_survive) {
    const Context context = open(config_for(1));
    for (const float value : {3e38F, -3.4e38F, 1e-30F, 1e-37F, 0.0F}) {
        const std::vector<float> in(256, value);
        std::vector<float> out(in.size(), 99);
        CHECK_EQ(reduce(context, in, out, SWITCHML_FLOAT32).status, SWITCHML_OK);
        for (const float got : out) CHECK(std::fabs(got - value) <= std::fabs(value) * 1e-6F + 0x1p-126F);
    }
}

TEST(a_sum_beyond_float32_is_infinite) {
    const Context context = open(config_for(2));
    const std::vector<float> in(256, 3e38F);
    std::vector<float> out(in.size(), 0);
    CHECK_EQ(reduce(context, in, out, SWITCHML_FLOAT32).status, SWITCHML_OK);
    for (const float got : out) CHECK(std::isinf(got) && got > 0);
}

TEST(nothing_to_reduce_completes_in_its_turn) {
    const Context context = open(config_for(2));
    std::vector<std::int32_t> values(5000, 1);
    std::vector<std::int32_t> out(values.size());
    Job first;
    Job empty;
    CHECK_EQ(switchml_allreduce_submit(context.get(), values.data(), out.data(), values.size(), SWITCHML_INT32,
                                       Job::callback, &first),
             SWITCHML_OK);
    CHECK_EQ(switchml_allreduce_submit(context.get(), nullptr, nullptr, 0, SWITCHML_INT32, Job::callback, &empty),
             SWITCHML_OK);
    CHECK_EQ(empty.wait().status, SWITCHML_OK);
    CHECK_EQ(first.wait(std::chrono::seconds(0)).status, SWITCHML_OK);
}

TEST(many_jobs_may_be_under_way) {
    const Context context = open(config_for(2, 2));
    constexpr std::size_t kJobs = 200;
    std::vector<std::vector<std::int32_t>> buffers(kJobs);
    std::array<Job, kJobs> jobs;
    for (std::size_t i = 0; i < kJobs; ++i) {
        buffers[i].assign(100 + 37 * i, static_cast<std::int32_t>(i));
        CHECK_EQ(switchml_allreduce_submit(context.get(), buffers[i].data(), buffers[i].data(), buffers[i].size(),
                                           SWITCHML_INT32, Job::callback, &jobs[i]),
                 SWITCHML_OK);
    }
    for (std::size_t i = 0; i < kJobs; ++i) {
        CHECK_EQ(jobs[i].wait().status, SWITCHML_OK);
        CHECK(std::all_of(buffers[i].begin(), buffers[i].end(),
                          [&](std::int32_t value) { return value == static_cast<std::int32_t>(2 * i); }));
    }
    const switchml_stats stats = stats_of(context);
    CHECK_EQ(stats.jobs_submitted, kJobs);
    CHECK_EQ(stats.jobs_completed, kJobs);
    CHECK_EQ(stats.jobs_failed, 0U);
    CHECK_EQ(stats.packets_sent, stats.packets_received);
    CHECK(stats.packets_sent >= kJobs);
}

TEST(a_process_may_have_one_session_after_another_but_not_two) {
    for (int i = 0; i < 3; ++i) {
        const Context context = open(config_for(2));
        switchml_context *second = nullptr;
        const switchml_config config = config_for(2);
        CHECK_EQ(switchml_open(&config, &second), SWITCHML_EUNSUPPORTED);
        std::vector<std::int32_t> values(1000, i);
        CHECK_EQ(reduce(context, values, values, SWITCHML_INT32).status, SWITCHML_OK);
        CHECK_EQ(values.front(), 2 * i);
        CHECK_EQ(stats_of(context).jobs_completed, 1U);
    }
}

TEST(an_abort_ends_what_is_under_way) {
    setenv("SWITCHML_CONFIG", SWITCHML_SLOW_CONFIG, 1);
    const Context context = open(config_for(2));
    unsetenv("SWITCHML_CONFIG");
    std::vector<std::int32_t> values(4000000, 1);
    Job first;
    Job second;
    for (Job *job : {&first, &second}) {
        CHECK_EQ(switchml_allreduce_submit(context.get(), values.data(), values.data(), values.size(), SWITCHML_INT32,
                                           Job::callback, job),
                 SWITCHML_OK);
    }
    CHECK_EQ(switchml_abort(context.get()), SWITCHML_OK);
    CHECK_EQ(first.wait().status, SWITCHML_EABORTED);
    CHECK_EQ(second.wait().status, SWITCHML_EABORTED);
    Job late;
    CHECK_EQ(switchml_allreduce_submit(context.get(), values.data(), values.data(), values.size(), SWITCHML_INT32,
                                       Job::callback, &late),
             SWITCHML_EABORTED);
    CHECK_EQ(stats_of(context).jobs_failed, 2U);
}

TEST(closing_ends_what_is_under_way) {
    setenv("SWITCHML_CONFIG", SWITCHML_SLOW_CONFIG, 1);
    std::vector<std::int32_t> values(4000000, 1);
    Job job;
    {
        const Context context = open(config_for(2));
        CHECK_EQ(switchml_allreduce_submit(context.get(), values.data(), values.data(), values.size(), SWITCHML_INT32,
                                           Job::callback, &job),
                 SWITCHML_OK);
    }
    unsetenv("SWITCHML_CONFIG");
    CHECK_EQ(job.wait(std::chrono::seconds(0)).status, SWITCHML_EABORTED);
}

CHECK_MAIN()
