// SPDX-License-Identifier: BSD-3-Clause
//
// Workers of the real library reduce through the real switch.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "completion.hpp"
#include "switch_process.hpp"
#include "wire/check.hpp"

using namespace switchml;
using namespace switchml::testing;

namespace {

template <class T>
struct Dtype;
template <>
struct Dtype<float> {
    static constexpr switchml_dtype value = SWITCHML_FLOAT32;
};
template <>
struct Dtype<std::int32_t> {
    static constexpr switchml_dtype value = SWITCHML_INT32;
};

template <class T>
using Buffers = std::vector<std::vector<T>>;

Buffers<std::int32_t> random_ints(std::size_t workers, std::size_t numel) {
    std::mt19937 random(static_cast<unsigned>(numel + workers));
    Buffers<std::int32_t> all(workers, std::vector<std::int32_t>(numel));
    for (auto &values : all) {
        for (auto &value : values) value = static_cast<std::int32_t>(random());  // sums wrap
    }
    return all;
}

Buffers<float> random_floats(std::size_t workers, std::size_t numel) {
    std::mt19937 random(static_cast<unsigned>(numel + workers));
    std::normal_distribution<float> normal;
    Buffers<float> all(workers, std::vector<float>(numel));
    for (auto &values : all) {
        for (auto &value : values) value = normal(random);
    }
    return all;
}

template <class T>
class Reduction {
  public:
    Reduction(Workers &workers, const Buffers<T> &in, bool in_place = false) : out_(in), jobs_(in.size()) {
        if (!in_place) {
            for (auto &values : out_) std::fill(values.begin(), values.end(), T{77});
        }
        for (std::size_t rank = 0; rank < in.size(); ++rank) {
            const T *from = in_place ? out_[rank].data() : in[rank].data();
            CHECK_EQ(switchml_allreduce_submit(workers.contexts[rank].get(), from, out_[rank].data(), in[rank].size(),
                                               Dtype<T>::value, Job::callback, &jobs_[rank]),
                     SWITCHML_OK);
        }
    }

    const Buffers<T> &wait() {
        for (auto &job : jobs_) {
            const Result result = job.wait();
            if (result.status != SWITCHML_OK) throw check::Failed(result.message);
        }
        return out_;
    }

  private:
    Buffers<T> out_;
    std::vector<Job> jobs_;
};

void check_sums(const Buffers<std::int32_t> &in, const Buffers<std::int32_t> &out) {
    for (std::size_t i = 0; i < in[0].size(); ++i) {
        std::uint32_t sum = 0;
        for (const auto &values : in) sum += static_cast<std::uint32_t>(values[i]);
        CHECK_EQ(static_cast<std::uint32_t>(out[0][i]), sum);
    }
    for (const auto &values : out) CHECK(values == out[0]);
}

// switchml.h's bound with the magnitude of the whole array, which covers that of each packet.
void check_sums(const Buffers<float> &in, const Buffers<float> &out) {
    const double n = static_cast<double>(in.size());
    float largest = 0;
    for (const auto &values : in) {
        for (const float value : values) largest = std::max(largest, std::fabs(value));
    }
    int exponent = 0;
    std::frexp(largest, &exponent);
    const double bound = n / 2 * std::ldexp(1.0, exponent + static_cast<int>(std::ceil(std::log2(n))) - 31);
    for (std::size_t i = 0; i < in[0].size(); ++i) {
        double sum = 0;
        for (const auto &values : in) sum += double{values[i]};
        CHECK(std::fabs(double{out[0][i]} - sum) <= bound + std::fabs(sum) * 0x1p-24);
    }
    // The same bits everywhere, so that replicas of a model stay replicas.
    for (const auto &values : out)
        CHECK(values.empty() || std::memcmp(values.data(), out[0].data(), 4 * values.size()) == 0);
}

constexpr std::size_t kSizes[] = {0, 1, 63, 64, 65, 255, 256, 257, 1000, 100003};

template <class T>
void reduce_sizes(Workers &workers, Buffers<T> (*make)(std::size_t, std::size_t), bool in_place) {
    for (const std::size_t numel : kSizes) {
        const Buffers<T> in = make(workers.contexts.size(), numel);
        check_sums(in, Reduction<T>(workers, in, in_place).wait());
    }
}

void set_window(switchml_config &config) { config.max_outstanding_packets = 16; }

}  // namespace

TEST(every_size_from_one_to_eight_workers) {
    for (const std::uint32_t count : {1U, 2U, 3U, 5U, 8U}) {
        Switch net;
        Workers workers(net, count);
        reduce_sizes<std::int32_t>(workers, random_ints, false);
        reduce_sizes<float>(workers, random_floats, false);
    }
}

// Of a few elements, whose packets need no exponent.
TEST(few_floats_are_summed_as_if_by_one_addition) {
    for (const std::uint32_t threads : {1U, 3U}) {
        Switch net;
        Workers workers(net, 4, [threads](switchml_config &config) {
            config.num_threads = threads;
            config.max_outstanding_packets = 8 * threads;
        });
        for (const std::size_t numel : {1U, 2U, 21U, 22U, 23U, 60U, 64U}) {
            Buffers<float> in(4, std::vector<float>(numel));
            for (std::size_t i = 0; i < numel; ++i) {
                in[0][i] = 1e8F;
                in[1][i] = std::ldexp(static_cast<float>(i + 1), -10);
                in[2][i] = -1e8F;
            }
            Reduction<float> reduction(workers, in);
            const auto &out = reduction.wait();
            const bool few = (numel + threads - 1) / threads <= (256 - 2 * 4) / 11;
            for (std::size_t rank = 0; rank < 4; ++rank) {
                for (std::size_t i = 0; few && i < numel; ++i) CHECK_EQ(out[rank][i], in[1][i]);
            }
            check_sums(in, out);
        }
    }
}

// Two workers double parts of one array, each an element behind the one before it, all of them submitted at once.
void check_falling_parts(std::uint32_t threads, std::size_t numel, int rounds) {
    constexpr std::size_t kJobs = 30;
    Switch net;
    Workers workers(net, 2, [threads](switchml_config &config) {
        config.num_threads = threads;
        config.max_outstanding_packets = 8 * threads;
    });
    for (int round = 0; round < rounds; ++round) {
        Buffers<std::int32_t> values(2, std::vector<std::int32_t>(numel + kJobs - 1, 1));
        std::vector<Job> jobs(2 * kJobs);
        for (std::size_t i = 0; i < jobs.size(); ++i) {
            std::int32_t *const first = values[i % 2].data() + (kJobs - 1 - i / 2);
            CHECK_EQ(switchml_allreduce_submit(workers.contexts[i % 2].get(), first, first, numel, SWITCHML_INT32,
                                               Job::callback, &jobs[i]),
                     SWITCHML_OK);
        }
        for (auto &job : jobs) CHECK_EQ(job.wait().status, SWITCHML_OK);
        for (const auto &own : values) {
            for (std::size_t i = 0; i < own.size(); ++i)
                CHECK_EQ(own[i], std::int32_t{1} << std::min({i + 1, kJobs, own.size() - i}));
        }
    }
}

TEST(a_job_reads_what_the_ones_ahead_of_it_have_written) { check_falling_parts(1, 20000, 1); }

// What a thread begins a job with is what the thread before it has last in the job ahead.
TEST(a_thread_waits_for_what_another_has_to_write_first) { check_falling_parts(3, 3000, 30); }

TEST(in_place_with_a_small_window_and_small_packets) {
    Switch net;
    Workers workers(net, 2, [](switchml_config &config) {
        set_window(config);
        config.packet_numel = 64;
    });
    reduce_sizes<std::int32_t>(workers, random_ints, true);
    reduce_sizes<float>(workers, random_floats, true);
}

TEST(windows_of_every_small_size_keep_slots_in_step) {
    for (const std::uint32_t window : {1U, 2U, 3U, 4U, 7U}) {
        Switch net;
        Workers workers(net, 2, [window](switchml_config &config) { config.max_outstanding_packets = window; });
        for (std::size_t packets = 1; packets <= 9; ++packets) {
            const auto ints = random_ints(2, 256 * packets);
            check_sums(ints, Reduction<std::int32_t>(workers, ints).wait());
            const auto floats = random_floats(2, 256 * packets);
            check_sums(floats, Reduction<float>(workers, floats).wait());
        }
    }
}

TEST(several_threads_share_a_job) {
    Switch net;
    Workers workers(net, 2, [](switchml_config &config) {
        config.num_threads = 4;
        config.max_outstanding_packets = 64;
    });
    reduce_sizes<std::int32_t>(workers, random_ints, false);
    reduce_sizes<float>(workers, random_floats, true);
}

TEST(a_million_elements) {
    Switch net;
    Workers workers(net, 2);
    const auto ints = random_ints(2, 1 << 20);
    check_sums(ints, Reduction<std::int32_t>(workers, ints).wait());
    const auto floats = random_floats(2, 1 << 20);
    check_sums(floats, Reduction<float>(workers, floats).wait());
}

TEST(jobs_in_flight_complete_in_order) {
    Switch net;
    Workers workers(net, 2);
    std::vector<Buffers<std::int32_t>> inputs;
    std::vector<std::unique_ptr<Reduction<std::int32_t>>> jobs;
    for (std::size_t i = 0; i < 300; ++i) inputs.push_back(random_ints(2, i * 7 % 1000));  // job ids wrap at 256
    for (const auto &in : inputs) jobs.push_back(std::make_unique<Reduction<std::int32_t>>(workers, in));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i][0].empty())
            check_sums(inputs[i], jobs[i]->wait());
        else
            jobs[i]->wait();
    }
    const switchml_stats stats = stats_of(workers.contexts[0]);
    CHECK_EQ(stats.jobs_submitted, 300U);
    CHECK_EQ(stats.jobs_completed, 300U);
    CHECK_EQ(stats.jobs_failed, 0U);
}

TEST(a_callback_may_submit_the_next_job) {
    Switch net;
    Workers workers(net, 1);
    struct Chain {
        switchml_context *context;
        std::int32_t value = 1;
        int left = 20;
        Job last;

        static void step(void *user, switchml_status status, const char *message) {
            auto *chain = static_cast<Chain *>(user);
            if (status != SWITCHML_OK || --chain->left == 0) {
                Job::callback(&chain->last, status, message);
                return;
            }
            switchml_allreduce_submit(chain->context, &chain->value, &chain->value, 1, SWITCHML_INT32, step, chain);
        }
    } chain{workers.contexts[0].get(), 1, 20, {}};
    switchml_allreduce_submit(chain.context, &chain.value, &chain.value, 1, SWITCHML_INT32, Chain::step, &chain);
    CHECK_EQ(chain.last.wait().status, SWITCHML_OK);
    CHECK_EQ(stats_of(workers.contexts[0]).jobs_completed, 20U);
}

TEST(non_finite_values_make_their_packet_nan_and_no_other) {
    Switch net;
    Workers workers(net, 2);
    auto in = random_floats(2, 4 * 256);
    in[1][300] = std::numeric_limits<float>::quiet_NaN();
    in[0][600] = -std::numeric_limits<float>::infinity();
    Reduction<float> reduction(workers, in);
    for (const auto &values : reduction.wait()) {
        for (std::size_t i = 0; i < values.size(); ++i) CHECK_EQ(std::isnan(values[i]), i >= 256 && i < 768);
    }
}

TEST(magnitudes_of_all_kinds_side_by_side) {
    Switch net;
    Workers workers(net, 2, set_window);
    Buffers<float> in(2, std::vector<float>(6 * 256));
    const float scales[] = {0.0F,  std::numeric_limits<float>::denorm_min(), 1e-38F, 1.0F,
                            1e38F, std::numeric_limits<float>::max()};
    for (std::size_t rank = 0; rank < 2; ++rank) {
        for (std::size_t i = 0; i < in[rank].size(); ++i) in[rank][i] = scales[i / 256] * (rank == 0 ? 1.0F : -0.5F);
    }
    Reduction<float> reduction(workers, in);
    for (const auto &values : reduction.wait()) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double sum = double{in[0][i]} + double{in[1][i]};
            CHECK(std::fabs(double{values[i]} - sum) <= std::fabs(double{in[0][i]}) * 0x1p-24);
        }
    }
}

TEST(the_switch_counts_what_it_did) {
    Switch net;
    {
        Workers workers(net, 2, set_window);
        const auto in = random_ints(2, 256 * 40);
        check_sums(in, Reduction<std::int32_t>(workers, in).wait());
        const switchml_stats stats = stats_of(workers.contexts[1]);
        CHECK_EQ(stats.packets_sent, 41U);  // one of them describes the job
        CHECK_EQ(stats.packets_received, 41U);
        CHECK_EQ(stats.elements_reduced, 256U * 40);
        CHECK(stats.receive_buffer_wanted > 0 && stats.receive_buffer_granted > 0);
    }
    const std::string stats = net.stop();
    CHECK_EQ(json_value(stats, "event"), "stopped");
    CHECK_EQ(json_number(stats, "sessions_opened"), 1U);
    CHECK_EQ(json_number(stats, "num_workers"), 2U);
    CHECK_EQ(json_number(stats, "slots_completed"), 41U);
    CHECK_EQ(json_number(stats, "elements_aggregated"), 256U * 41);
    CHECK_EQ(json_value(stats, "address"), private_address(2));
}

// As README.md says: 22 elements are the most that two workers sum exactly.
TEST(few_floats_take_one_slot_and_more_take_two) {
    for (const std::size_t numel : {1U, 22U, 23U}) {
        Switch net;
        {
            Workers workers(net, 2);
            const auto in = random_floats(2, numel);
            check_sums(in, Reduction<float>(workers, in).wait());
        }
        CHECK_EQ(json_number(net.stop(), "slots_completed"), numel <= 22 ? 1U : 2U);
    }
}

CHECK_MAIN()
