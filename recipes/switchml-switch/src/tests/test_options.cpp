// SPDX-License-Identifier: BSD-3-Clause
#include <string>
#include <vector>

#include "counters.hpp"
#include "options.hpp"
#include "wire/check.hpp"

using namespace switchml::softswitch;

namespace {

Options parse(std::vector<const char *> arguments) {
    arguments.insert(arguments.begin(), "switchml-switch");
    return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

void refused(const std::vector<const char *> &arguments, const std::string &mention) {
    try {
        parse(arguments);
    } catch (const UsageError &error) {
        CHECK_MENTIONS(error.what(), mention);
        return;
    }
    throw switchml::check::Failed(std::string("accepted, although ") + mention + " is wrong");
}

}  // namespace

TEST(defaults_are_the_published_ports) {
    const Options options = parse({"--address", "127.0.0.1"});
    CHECK_EQ(options.address.ipv4(), 0x7F000001U);
    CHECK_EQ(options.data_port, 48864);
    CHECK_EQ(options.controller_port, 50099);
    CHECK_EQ(options.max_workers, 32U);
    CHECK_EQ(options.drop_rate, 0.0);
    CHECK(options.stats_file.empty());
}

TEST(every_option_is_taken_in_both_spellings) {
    const Options options =
        parse({"--address=10.1.2.3", "--port", "0", "--controller-port=7", "--stats-file", "/x=y", "--drop-rate=0.25",
               "--drop-result-rate", "0.5", "--seed", "18446744073709551615", "--max-workers=4"});
    CHECK_EQ(switchml::wire::to_text(options.address), "10.1.2.3");
    CHECK_EQ(options.data_port, 0);
    CHECK_EQ(options.controller_port, 7);
    CHECK_EQ(options.stats_file, "/x=y");
    CHECK_EQ(options.drop_rate, 0.25);
    CHECK_EQ(options.drop_result_rate, 0.5);
    CHECK_EQ(options.seed, 18446744073709551615U);
    CHECK_EQ(options.max_workers, 4U);
    CHECK_EQ(parse({"--address", "127.0.0.1", "--metrics-file", "text/switch.prom"}).metrics_file, "text/switch.prom");
}

TEST(help_and_version_need_no_address) {
    CHECK(parse({"--help"}).help);
    CHECK(parse({"--version"}).version);
}

TEST(wrong_options_are_named) {
    refused({}, "--address");
    refused({"--address"}, "--address");
    refused({"--address", "0.0.0.0"}, "0.0.0.0");
    refused({"--address", "localhost"}, "localhost");
    refused({"--address", "::"}, "::");
    for (const char *file : {"", "switch", "switch.txt", ".prom", "a/.prom", "a.prom/switch"})
        refused({"--address", "::1", "--metrics-file", file}, "--metrics-file is '" + std::string(file) + "'");
    refused({"--address", "::1", "--metrics", "127.0.0.1:9400"}, "give --metrics-file");  // of releases before
    refused({"--address", "127.0.0.1", "--port", "65536"}, "65536");
    refused({"--address", "127.0.0.1", "--controller-port", "-1"}, "-1");
    refused({"--address", "127.0.0.1", "--max-workers", "33"}, "33");
    refused({"--address", "127.0.0.1", "--max-workers", "0"}, "--max-workers");
    refused({"--address", "127.0.0.1", "--drop-rate", "1"}, "--drop-rate");
    refused({"--address", "127.0.0.1", "--drop-rate", "nan"}, "nan");
    refused({"--address", "127.0.0.1", "--drop-result-rate", "x"}, "--drop-result-rate");
    refused({"--address", "127.0.0.1", "--duplicate-rate", "-0.1"}, "--duplicate-rate");
    refused({"--address", "127.0.0.1", "--delay-rate", "2"}, "--delay-rate");
    refused({"--address", "127.0.0.1", "--delay-ms", "0"}, "--delay-ms");
    refused({"--address", "127.0.0.1", "--reorder-rate", ""}, "--reorder-rate");
    refused({"--address", "127.0.0.1", "--tls-cert", "c.pem"}, "--tls-key");
    refused({"--address", "127.0.0.1", "--tls-key", "c.key"}, "--tls-cert");
    refused({"--address", "127.0.0.1", "--tls-client-ca", "ca.pem"}, "--tls-client-ca");
    refused({"--address", "127.0.0.1", "--verbose", "1"}, "--verbose");
}

TEST(counters_are_one_line_of_json) {
    Counters counters;
    counters.sessions_opened = 2;
    counters.packet_numel = 64;
    counters.packets_received = 10;
    counters.packets_dropped = {1, 2, 3, 5};
    counters.packet_faults = {4, 12, 13, 14};
    counters.result_faults = {7, 15, 16, 17};
    counters.dropped_sources = {{{{0x7F000009, 4000}, {18, 19}}, {{0x7F000009, 4001}, {0, 1}}}, {20, 21}};
    counters.slots_completed = 5;
    counters.elements_aggregated = 320;
    counters.results_sent = 6;
    counters.results_undeliverable = 11;
    counters.receive_buffer_bytes = 8;
    counters.workers = {{0x7F000002, 9, 2394, 1}, {}};
    CHECK_EQ(
        to_json(counters),
        "{\"schema\": 1, \"sessions_opened\": 2, \"num_workers\": 2, \"packet_numel\": 64, \"packets_received\": 10, "
        "\"packets_dropped\": {\"malformed\": 1, \"unknown_worker\": 2, \"bad_slot\": 3, \"stale\": 5, \"injected\": "
        "4}, "
        "\"slots_completed\": 5, \"elements_aggregated\": 320, \"results_sent\": 6, \"results_dropped_injected\": 7, "
        "\"results_undeliverable\": 11, \"packets_injected\": {\"duplicated\": 12, \"delayed\": 13, \"reordered\": "
        "14}, \"results_injected\": {\"duplicated\": 15, \"delayed\": 16, \"reordered\": 17}, "
        "\"receive_buffer_bytes\": 8, \"dropped_sources\": {\"latest\": [{\"address\": \"127.0.0.9:4000\", "
        "\"unknown_worker\": 18, \"malformed\": 19}, {\"address\": \"127.0.0.9:4001\", \"unknown_worker\": 0, "
        "\"malformed\": 1}], \"others\": {\"unknown_worker\": 20, \"malformed\": 21}}, \"workers\": [{\"rank\": 0, "
        "\"address\": "
        "\"127.0.0.2\", \"packets\": 9, "
        "\"bytes\": 2394, \"retransmitted_results\": 1}, {\"rank\": 1, \"address\": null, \"packets\": 0, \"bytes\": "
        "0, "
        "\"retransmitted_results\": 0}]}");
}

TEST(addresses_may_be_of_ipv6) {
    const Options options = parse({"--address", "fd00::5"});
    CHECK_EQ(switchml::wire::to_text(options.address), "fd00::5");
}

TEST(json_strings_are_escaped) { CHECK_EQ(json_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\""); }

CHECK_MAIN()
