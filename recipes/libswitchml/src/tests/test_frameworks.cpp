// SPDX-License-Identifier: BSD-3-Clause
//
// What integrations of frameworks get from any transport, without a switch.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "switchml.h"
#include "wire/check.hpp"

namespace {

switchml_config config_of(std::uint32_t rank, const char *controller) {
    switchml_config config{};
    config.struct_size = sizeof config;
    config.rank = rank;
    config.num_workers = 2;
    config.controller = controller;
    return config;
}

switchml_config resolve(const switchml_config &config) {
    switchml_config resolved{};
    resolved.struct_size = sizeof resolved;
    CHECK_EQ(switchml_resolve(&config, &resolved), SWITCHML_OK);
    return resolved;
}

std::uint32_t default_window() { return std::string(switchml_transport()) == "udp" ? 252 : 256; }

// The text that a function writes.
template <class Write>
std::string text_of(Write &&write) {
    std::string text(write(nullptr, 0), ' ');
    CHECK_EQ(write(text.data(), text.size() + 1), text.size());
    return text;
}

std::string compare(const std::vector<const char *> &reports) {
    return text_of([&](char *text, std::size_t size) {
        return switchml_compare_reports(reports.data(), static_cast<std::uint32_t>(reports.size()), 7500, text, size);
    });
}

std::string common_settings(const switchml_config &resolved) {
    return text_of([&](char *text, std::size_t size) { return switchml_common_settings(&resolved, text, size); });
}

std::string describe(const switchml_stats &stats) {
    return text_of([&](char *text, std::size_t size) { return switchml_describe_stats(&stats, text, size); });
}

}  // namespace

TEST(a_resolved_configuration_leaves_nothing_open) {
    switchml_config config = config_of(1, "[::1]");
    config.packet_numel = 64;
    config.job_name = "training";
    const switchml_config resolved = resolve(config);
    CHECK_EQ(resolved.struct_size, sizeof resolved);
    CHECK_EQ(resolved.rank, 1U);
    CHECK_EQ(resolved.num_workers, 2U);
    CHECK_EQ(std::string(resolved.controller), "[::1]:50099");
    CHECK(resolved.local_address == nullptr);  // which the route to the controller decides
    CHECK_EQ(resolved.worker_port, 4000U);
    CHECK_EQ(resolved.num_threads, 1U);
    CHECK_EQ(resolved.max_outstanding_packets, default_window());
    CHECK_EQ(resolved.packet_numel, 64U);
    CHECK_EQ(resolved.retransmit_timeout_us, 10000U);
    CHECK_EQ(resolved.connect_timeout_ms, 3000U);
    CHECK_EQ(resolved.job_timeout_ms, 30000U);
    CHECK_EQ(std::string(resolved.job_name), "training");
}

TEST(a_configuration_is_refused_as_when_a_session_is_opened) {
    const switchml_config config = config_of(2, "switch.example");
    switchml_config resolved{};
    resolved.struct_size = sizeof resolved;
    CHECK_EQ(switchml_resolve(&config, &resolved), SWITCHML_EINVAL);
    CHECK_MENTIONS(switchml_last_error(), "rank is 2");
    CHECK_EQ(switchml_resolve(nullptr, &resolved), SWITCHML_EINVAL);
    CHECK_EQ(switchml_resolve(&config, nullptr), SWITCHML_EINVAL);
}

TEST(an_older_struct_is_filled_as_far_as_it_goes) {
    const switchml_config config = config_of(0, "switch.example");
    switchml_config resolved{};
    resolved.struct_size = offsetof(switchml_config, job_timeout_ms);
    CHECK_EQ(switchml_resolve(&config, &resolved), SWITCHML_OK);
    CHECK_EQ(resolved.connect_timeout_ms, 3000U);
    CHECK_EQ(resolved.job_timeout_ms, 0U);
}

TEST(what_all_workers_share_is_said_with_the_values_that_hold) {
    switchml_config config = config_of(0, "switch.example");
    config.worker_port = 5000;
    CHECK_EQ(common_settings(resolve(config)),
             std::string("the transport of libswitchml\t") + switchml_transport() +
                 "\nSWITCHML_CONTROLLER\tswitch.example:50099\nSWITCHML_MAX_OUTSTANDING_PACKETS\t" +
                 std::to_string(default_window()) +
                 "\nSWITCHML_NUM_THREADS\t1\nSWITCHML_PACKET_NUMEL\t256\nSWITCHML_WORKER_PORT\t5000\n");
}

TEST(workers_that_agree_have_nothing_said_of_them) {
    CHECK_EQ(compare({"\nspeed\t1\nsize\t2\n", "\nsize\t2\nspeed\t1\n", "\nspeed\t1\nsize\t2\n"}), "");
    CHECK_EQ(compare({"", "\n"}), "");
}

TEST(errors_and_silence_come_before_differences) {
    CHECK_EQ(compare({"\nspeed\t1\n", "no library\n", nullptr, "no library\nspeed\t2\n", "no memory", nullptr}),
             "ranks 1, 3: no library; rank 4: no memory; ranks 2, 5 did not report within 7.5 s: is SwitchML installed "
             "there, and SWITCHML_CONTROLLER set, and has the rank ended an earlier group on this store?");
}

TEST(differences_name_all_values_and_their_ranks) {
    CHECK_EQ(compare({"\nspeed\t1\nsize\t\n", "\nspeed\t2\nsize\t\n", "\nspeed\t1\nsize\ta\tb\n"}),
             "size must be the same on all ranks, but is '' on ranks 0, 1, 'a\tb' on rank 2; "
             "speed must be the same on all ranks, but is '1' on ranks 0, 2, '2' on rank 1");
}

TEST(a_text_is_cut_to_the_callers_size) {
    char text[6] = "xxxxx";
    const switchml_stats none{};
    CHECK_EQ(switchml_describe_stats(&none, text, 0), 2U);
    CHECK_EQ(std::string(text), "xxxxx");
    CHECK_EQ(switchml_describe_stats(&none, text, 2), 2U);
    CHECK_EQ(std::string(text), "{");
    CHECK_EQ(switchml_describe_stats(&none, text, 6), 2U);
    CHECK_EQ(std::string(text), "{}");
}

TEST(the_library_describes_itself) {
    const std::string text = text_of(switchml_describe_library);
    CHECK_MENTIONS(text, "\"version\": \"" + std::string(switchml_version()) + "\", \"transport\": \"" +
                             switchml_transport() + "\", \"abi_version\": 1}");
    CHECK_MENTIONS(text, "libswitchml.so");
}

TEST(counters_have_their_names_as_far_as_the_callers_struct_goes) {
    switchml_stats stats{};
    stats.struct_size = offsetof(switchml_stats, jobs_failed);
    stats.jobs_submitted = 3;
    stats.jobs_completed = UINT64_MAX;
    CHECK_EQ(describe(stats), "{\"jobs_submitted\": 3, \"jobs_completed\": 18446744073709551615}");
    stats.struct_size = sizeof stats;
    stats.receive_buffer_granted = 5;
    CHECK_EQ(describe(stats),
             "{\"jobs_submitted\": 3, \"jobs_completed\": 18446744073709551615, \"jobs_failed\": 0, "
             "\"elements_reduced\": 0, \"packets_sent\": 0, \"packets_received\": 0, \"packets_retransmitted\": 0, "
             "\"packets_discarded\": 0, \"receive_buffer_wanted\": 0, \"receive_buffer_granted\": 5}");
    static_assert(sizeof stats == sizeof(std::size_t) + 10 * sizeof(std::uint64_t), "name every counter");
}

CHECK_MAIN()
