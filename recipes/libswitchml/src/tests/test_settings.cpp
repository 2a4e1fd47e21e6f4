// SPDX-License-Identifier: BSD-3-Clause
#include <map>
#include <optional>
#include <string>

#include "error.hpp"
#include "settings.hpp"
#include "wire/check.hpp"

using namespace switchml;

namespace {

using Variables = std::map<std::string, std::string>;

switchml_config base() {
    switchml_config config{};
    config.struct_size = sizeof config;
    config.rank = 1;
    config.num_workers = 4;
    return config;
}

Settings resolve(const switchml_config &config, Variables variables) {
    variables.emplace("SWITCHML_CONTROLLER", "switch.example");
    return resolve_settings(config, [&](const char *name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
    });
}

void refused(const switchml_config &config, const Variables &variables, switchml_status status, const char *mention) {
    try {
        resolve(config, variables);
    } catch (const Error &error) {
        CHECK_EQ(error.status(), status);
        CHECK_MENTIONS(error.what(), mention);
        return;
    }
    throw check::Failed(std::string("accepted, although ") + mention + " is wrong");
}

}  // namespace

TEST(defaults_hold_when_nothing_is_set) {
    const Settings settings = resolve(base(), {});
    CHECK_EQ(settings.controller_host, "switch.example");
    CHECK_EQ(settings.controller_port, 50099);
    CHECK(!settings.local_address);
    CHECK_EQ(settings.worker_port, 4000);
    CHECK_EQ(settings.num_threads, 1U);
    CHECK_EQ(settings.max_outstanding_packets, 256U);
    CHECK_EQ(settings.packet_numel, 256U);
    CHECK_EQ(settings.retransmit_timeout_us, 10000U);
    CHECK_EQ(settings.connect_timeout_ms, 3000U);
    CHECK_EQ(settings.job_timeout_ms, 30000U);
    CHECK(settings.segment_offload);
}

TEST(ipv6_addresses_stand_in_brackets) {
    Settings settings =
        resolve(base(), {{"SWITCHML_CONTROLLER", "[fd00::5]:1234"}, {"SWITCHML_LOCAL_ADDRESS", "fd00::7"}});
    CHECK_EQ(settings.controller_host, "fd00::5");
    CHECK_EQ(settings.controller_port, 1234);
    CHECK_EQ(wire::to_text(*settings.local_address), "fd00::7");
    settings = resolve(base(), {{"SWITCHML_CONTROLLER", "[::1]"}});
    CHECK_EQ(settings.controller_host, "::1");
    CHECK_EQ(settings.controller_port, 50099);
}

TEST(the_environment_fills_what_the_struct_leaves_open) {
    const Settings settings = resolve(base(), {{"SWITCHML_CONTROLLER", "10.0.0.9:1234"},
                                               {"SWITCHML_LOCAL_ADDRESS", "10.0.0.7"},
                                               {"SWITCHML_WORKER_PORT", "5000"},
                                               {"SWITCHML_NUM_THREADS", "4"},
                                               {"SWITCHML_MAX_OUTSTANDING_PACKETS", "1024"},
                                               {"SWITCHML_PACKET_NUMEL", "64"},
                                               {"SWITCHML_RETRANSMIT_TIMEOUT_US", "2000"},
                                               {"SWITCHML_CONNECT_TIMEOUT_MS", "7"},
                                               {"SWITCHML_JOB_TIMEOUT_MS", "8"},
                                               {"SWITCHML_SEGMENT_OFFLOAD", "0"}});
    CHECK_EQ(settings.controller_host, "10.0.0.9");
    CHECK_EQ(settings.controller_port, 1234);
    CHECK_EQ(settings.local_address->ipv4(), 0x0A000007U);
    CHECK_EQ(settings.worker_port, 5000);
    CHECK_EQ(settings.num_threads, 4U);
    CHECK_EQ(settings.max_outstanding_packets, 1024U);
    CHECK_EQ(settings.packet_numel, 64U);
    CHECK_EQ(settings.retransmit_timeout_us, 2000U);
    CHECK_EQ(settings.connect_timeout_ms, 7U);
    CHECK_EQ(settings.job_timeout_ms, 8U);
    CHECK(!settings.segment_offload);
}

TEST(the_default_window_is_a_multiple_of_the_threads) {
    const auto window = [](const char *threads) {
        return resolve(base(), {{"SWITCHML_NUM_THREADS", threads}}).max_outstanding_packets;
    };
    CHECK_EQ(window("4"), 256U);
    CHECK_EQ(window("3"), 258U);
    CHECK_EQ(window("32"), 256U);
}

TEST(the_struct_wins_over_the_environment) {
    switchml_config config = base();
    config.controller = "127.0.0.1:9";
    config.worker_port = 4321;
    const Settings settings = resolve(config, {{"SWITCHML_CONTROLLER", "elsewhere:1"}, {"SWITCHML_WORKER_PORT", "1"}});
    CHECK_EQ(settings.controller_host, "127.0.0.1");
    CHECK_EQ(settings.controller_port, 9);
    CHECK_EQ(settings.worker_port, 4321);
}

TEST(an_empty_variable_counts_as_not_set) {
    CHECK_EQ(resolve(base(), {{"SWITCHML_WORKER_PORT", ""}}).worker_port, 4000);
}

TEST(malformed_variables_are_named) {
    const Variables bad[] = {
        {{"SWITCHML_CONTROLLER", "host:"}},
        {{"SWITCHML_CONTROLLER", ":50099"}},
        {{"SWITCHML_CONTROLLER", "host:0"}},
        {{"SWITCHML_CONTROLLER", "host:65536"}},
        {{"SWITCHML_CONTROLLER", "http://host:1"}},
        {{"SWITCHML_CONTROLLER", "[::1]:"}},
        {{"SWITCHML_CONTROLLER", "a b"}},
        {{"SWITCHML_LOCAL_ADDRESS", "localhost"}},
        {{"SWITCHML_LOCAL_ADDRESS", "0.0.0.0"}},
        {{"SWITCHML_LOCAL_ADDRESS", "[::1]"}},
        {{"SWITCHML_WORKER_PORT", "0"}},
        {{"SWITCHML_WORKER_PORT", "65536"}},
        {{"SWITCHML_WORKER_PORT", "4000x"}},
        {{"SWITCHML_WORKER_PORT", " 4000"}},
        {{"SWITCHML_NUM_THREADS", "-1"}},
        {{"SWITCHML_NUM_THREADS", "33"}},
        {{"SWITCHML_MAX_OUTSTANDING_PACKETS", "4097"}},
        {{"SWITCHML_MAX_OUTSTANDING_PACKETS", "1e3"}},
        {{"SWITCHML_PACKET_NUMEL", "128"}},
        {{"SWITCHML_PACKET_NUMEL", "512"}},
        {{"SWITCHML_RETRANSMIT_TIMEOUT_US", "99"}},
        {{"SWITCHML_CONNECT_TIMEOUT_MS", "99999999999999999999"}},
        {{"SWITCHML_JOB_TIMEOUT_MS", "soon"}},
        {{"SWITCHML_SEGMENT_OFFLOAD", "yes"}},
    };
    for (const Variables &variables : bad) {
        refused(base(), variables, SWITCHML_ECONFIG, variables.begin()->first.c_str());
    }
}

TEST(a_missing_controller_names_the_variable) {
    try {
        resolve_settings(base(), [](const char *) { return std::nullopt; });
        throw check::Failed("accepted without a controller");
    } catch (const Error &error) {
        CHECK_EQ(error.status(), SWITCHML_ECONFIG);
        CHECK_MENTIONS(error.what(), "SWITCHML_CONTROLLER");
    }
}

TEST(wrong_fields_of_the_struct_are_the_callers_fault) {
    const auto with = [](auto &&change) {
        switchml_config config = base();
        change(config);
        return config;
    };
    refused(with([](auto &c) { c.rank = 4; }), {}, SWITCHML_EINVAL, "rank");
    refused(with([](auto &c) { c.num_workers = 0; }), {}, SWITCHML_EINVAL, "num_workers");
    refused(with([](auto &c) { c.num_workers = 33; }), {}, SWITCHML_EINVAL, "num_workers");
    refused(with([](auto &c) { c.worker_port = 70000; }), {}, SWITCHML_EINVAL, "worker_port");
    refused(with([](auto &c) { c.packet_numel = 100; }), {}, SWITCHML_EINVAL, "packet_numel");
    refused(with([](auto &c) { c.local_address = "nowhere"; }), {}, SWITCHML_EINVAL, "local_address");
    refused(with([](auto &c) { c.controller = "x:y"; }), {}, SWITCHML_EINVAL, "controller");
    refused(with([](auto &c) { c.controller = "fd00::5"; }), {}, SWITCHML_EINVAL, "in brackets");
    refused(with([](auto &c) { c.controller = "[10.0.0.5]:50099"; }), {}, SWITCHML_EINVAL, "in brackets");
    refused(with([](auto &c) { c.controller = "[fd00::5]50099"; }), {}, SWITCHML_EINVAL, "in brackets");
    refused(with([](auto &c) { c.local_address = "::"; }), {}, SWITCHML_EINVAL, "local_address");
    refused(with([](auto &c) { c.struct_size = 8; }), {}, SWITCHML_EINVAL, "struct_size");
}

TEST(a_jobs_name_is_text_that_messages_can_carry) {
    for (const char *name : {"job 7", "\x7F", "\xC2\x80\xDF\xBF", "\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF",
                             "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"})
        CHECK_EQ(resolve(base(), {{"SWITCHML_JOB_NAME", name}}).job_name, name);
    for (const char *name : {"\x80", "caf\xE9", "\xC3", "\xC1\xBF", "\xE0\x9F\xBF", "\xE2\x82", "\xED\xA0\x80",
                             "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xFF"}) {
        refused(base(), {{"SWITCHML_JOB_NAME", name}}, SWITCHML_ECONFIG, "SWITCHML_JOB_NAME");
        switchml_config config = base();
        config.job_name = name;
        refused(config, {}, SWITCHML_EINVAL, "switchml_config.job_name");
    }
}

TEST(certificates_come_from_the_environment) {
    const Settings settings = resolve(base(), {{"SWITCHML_TOKEN_FILE", "/token"},
                                               {"SWITCHML_SESSION_TOKEN_FILE", "/job-token"},
                                               {"SWITCHML_TLS_CA", "/ca.pem"},
                                               {"SWITCHML_TLS_CERT", "/c.pem"},
                                               {"SWITCHML_TLS_KEY", "/c.key"}});
    CHECK_EQ(settings.token_file, "/token");
    CHECK_EQ(settings.session_token_file, "/job-token");
    CHECK_EQ(settings.tls_ca, "/ca.pem");
    CHECK_EQ(settings.tls_cert, "/c.pem");
    CHECK_EQ(settings.tls_key, "/c.key");
    CHECK_EQ(resolve(base(), {}).tls_ca, "");
}

TEST(settings_that_contradict_each_other_are_refused) {
    refused(base(), {{"SWITCHML_TLS_CA", "/ca.pem"}, {"SWITCHML_TLS_KEY", "/c.key"}}, SWITCHML_ECONFIG,
            "SWITCHML_TLS_CERT");
    refused(base(), {{"SWITCHML_TLS_CERT", "/c.pem"}, {"SWITCHML_TLS_KEY", "/c.key"}}, SWITCHML_ECONFIG,
            "SWITCHML_TLS_CA");
    refused(base(), {{"SWITCHML_NUM_THREADS", "3"}, {"SWITCHML_MAX_OUTSTANDING_PACKETS", "256"}}, SWITCHML_ECONFIG,
            "SWITCHML_MAX_OUTSTANDING_PACKETS");
    refused(base(), {{"SWITCHML_NUM_THREADS", "2"}, {"SWITCHML_WORKER_PORT", "65535"}}, SWITCHML_ECONFIG,
            "SWITCHML_WORKER_PORT");
}

TEST(an_older_shorter_struct_is_completed) {
    switchml_config config = base();
    config.worker_port = 4321;  // beyond what the caller says it has
    config.struct_size = offsetof(switchml_config, worker_port);
    CHECK_EQ(resolve(config, {}).worker_port, 4000);
}

TEST(a_newer_longer_struct_is_taken_when_it_asks_for_nothing_more) {
    struct {
        switchml_config config;
        std::uint64_t later;
    } extended{base(), 0};
    extended.config.struct_size = sizeof extended;
    CHECK_EQ(resolve(extended.config, {}).num_workers, 4U);
    extended.later = 1;
    refused(extended.config, {}, SWITCHML_EUNSUPPORTED, "update");
}

CHECK_MAIN()
