// SPDX-License-Identifier: BSD-3-Clause
//
// Who gets a session at the switch, for how long, and beside whom.
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "jobs.hpp"

using namespace switchml;
using namespace switchml::testing;

namespace {

// A job of its own name and ports.
Configure job_named(const char *name, std::uint32_t port) {
    return [name, port](switchml_config &config) {
        unhurried(config);
        config.job_name = name;
        config.worker_port = port;
    };
}

// Of IPv6's only loopback address; ports keep test runs apart.
void over_ipv6(switchml_config &config) {
    unhurried(config);
    config.local_address = nullptr;
    config.worker_port = 10000 + static_cast<std::uint32_t>(getpid()) % 20000;
}

wire::Endpoint endpoint_of(const std::string &text) {
    const std::size_t colon = text.rfind(':');
    const bool bracketed = text.front() == '[';
    return {wire::IpAddress::parse(bracketed ? text.substr(1, colon - 2) : text.substr(0, colon)).value(),
            static_cast<std::uint16_t>(std::stoul(text.substr(colon + 1)))};
}

bool has_ipv6(const char *test) {
    try {
        const wire::UdpSocket socket({wire::IpAddress::parse("::1").value(), 0}, 64);
        return true;
    } catch (const std::system_error &error) {
        std::printf("skipped %s: no IPv6 loopback: %s\n", test, error.what());
        return false;
    }
}

}  // namespace

TEST(workers_and_switch_meet_over_ipv6) {
    if (!has_ipv6("workers_and_switch_meet_over_ipv6")) return;
    Switch net({"--address", "::1", "--port", "0"});
    CHECK_MENTIONS(net.controller, "[::1]:");
    wire::UdpSocket stranger({wire::IpAddress::parse("::1").value(), 0}, 64);
    stranger.connect(endpoint_of(net.data));
    const std::uint8_t byte = 0;
    CHECK_EQ(send(stranger.fd(), &byte, 1, 0), 1);
    {
        Workers workers(net, 3, over_ipv6);
        check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 3, 50000);
        check_exact_rounds<float>(workers, SWITCHML_FLOAT32, 3, 50000);
    }
    const std::string stats = net.stop();
    CHECK_MENTIONS(stats, "{\"rank\": 2, \"address\": \"::1\"");
    CHECK_MENTIONS(stats, "{\"address\": \"" + wire::to_text(stranger.local()) +
                              "\", \"unknown_worker\": 0, "
                              "\"malformed\": 1}");
}

TEST(a_worker_that_sends_from_the_other_kind_of_address_is_refused) {
    if (!has_ipv6("a_worker_that_sends_from_the_other_kind_of_address_is_refused")) return;
    Switch net({"--address", "::1", "--port", "0"});
    const OpenFailed failure = open_failure(net.controller, 0, 1, quick);
    CHECK_EQ(failure.status, SWITCHML_EREFUSED);
    CHECK_MENTIONS(failure.what(), private_address(2) + ", which cannot reach ::1");
}

TEST(a_missing_worker_is_a_timeout_of_the_session) {
    Switch net;
    const OpenFailed failure = open_failure(net.controller, 0, 2, [](switchml_config &config) {
        config.connect_timeout_ms = 2000;  // also on a machine that is busy
        config.job_timeout_ms = 300;
    });
    CHECK_EQ(failure.status, SWITCHML_ETIMEDOUT);
    CHECK_MENTIONS(failure.what(), "2 workers");
}

// Seen before sessions were leases: the second job took the slots, its sum was 1000002 for 3, and the first one's
// rank 0 ended well although its rank 1 had not submitted.
TEST(a_second_job_is_refused_with_the_first_ones_name) {
    Switch net({"--max-sessions", "1"});
    Workers first(net, 2, job_named("first", 4000));
    const auto start = Clock::now();
    auto other = open_failure_async(net, 0, 2, job_named("second", 5000));
    const OpenFailed failures[] = {open_failure(net.controller, 1, 2, job_named("second", 5000)), other.get()};
    for (const auto &failure : failures) {
        CHECK_EQ(failure.status, SWITCHML_EREFUSED);
        CHECK_MENTIONS(failure.what(), "job 'first'");
        CHECK_MENTIONS(failure.what(), private_address(2) + ":4000");
    }
    CHECK(seconds_since(start) < 2);
    check_exact_rounds<std::int32_t>(first, SWITCHML_INT32, 2, 10000);
    first.contexts.clear();
    Workers second(net, 2, job_named("second", 5000));  // the first has ended
    check_exact_rounds<std::int32_t>(second, SWITCHML_INT32, 2, 10000);
}

TEST(jobs_side_by_side_do_not_touch_each_other) {
    Switch net({"--drop-rate", "0.02", "--drop-result-rate", "0.02"});
    Workers first(net, 2, job_named("first", 4000));
    Workers second(net, 3, job_named("second", 5000));
    auto other =
        std::async(std::launch::async, [&] { check_exact_rounds<std::int32_t>(second, SWITCHML_INT32, 10, 50000); });
    check_exact_rounds<float>(first, SWITCHML_FLOAT32, 10, 50000);
    other.get();
}

TEST(jobs_that_start_at_the_same_time_do_not_meet) {
    Switch net;
    auto opening = std::async(std::launch::async, [&] { return Workers(net, 3, job_named("first", 4000)); });
    Workers second(net, 2, job_named("second", 5000));
    Workers first = opening.get();
    check_exact_rounds<std::int32_t>(first, SWITCHML_INT32, 1, 1000);
    check_exact_rounds<std::int32_t>(second, SWITCHML_INT32, 1, 1000);
}

TEST(several_workers_share_an_address_by_their_ports) {
    Switch net;
    const std::string address = private_address(9);
    Workers workers(net, 3, [&](switchml_config &config) {
        config.local_address = address.c_str();
        config.num_threads = 2;
        config.worker_port = 4000 + 10 * config.rank;
    });
    check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 2, 10000);
    check_exact_rounds<float>(workers, SWITCHML_FLOAT32, 2, 10000);
}

TEST(a_lease_that_nobody_renews_runs_out) {
    Switch net({"--max-sessions", "1", "--lease-ms", "2000"});
    dying_worker(net, 7, 0, 1)->wait();
    const OpenFailed refused = open_failure(net.controller, 0, 1, job_named("next", 5000));
    CHECK_EQ(refused.status, SWITCHML_EREFUSED);
    CHECK_MENTIONS(refused.what(), "2.0 s after the last sign of it");
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));  // the lease
    Workers next(net, 1, job_named("next", 5000));
    std::this_thread::sleep_for(std::chrono::milliseconds(4000));  // two leases, in which only renewals are sent
    CHECK_EQ(open_failure(net.controller, 0, 1, job_named("third", 6000)).status, SWITCHML_EREFUSED);
    check_exact_rounds<std::int32_t>(next, SWITCHML_INT32, 1, 1000);
}

TEST(a_job_that_died_does_not_keep_its_own_place_from_its_successor) {
    Switch net({"--max-sessions", "1"});
    dying_worker(net, 2, 0, 1)->wait();
    Workers again(net, 1);  // at the same address and port
    check_exact_rounds<std::int32_t>(again, SWITCHML_INT32, 1, 1000);
}

TEST(a_switch_that_was_started_again_is_noticed_before_the_time_limit) {
    auto net = std::make_unique<Switch>(std::vector<std::string>{"--lease-ms", "1500"});
    const std::string port = net->controller.substr(net->controller.find(':') + 1);
    Workers workers(*net, 2);
    net->kill();
    net.reset();
    const auto start = Clock::now();
    const Switch next({"--controller-port", port, "--lease-ms", "1500"});
    Ints values(1000, 1);
    Job jobs[2];
    for (int rank = 0; rank < 2; ++rank) submit(workers.contexts[rank], values, jobs[rank]);
    for (auto &job : jobs) {
        const Result result = job.wait();
        CHECK_EQ(result.status, SWITCHML_EREFUSED);
        CHECK_MENTIONS(result.message, "started again");
    }
    CHECK(seconds_since(start) < 10);
    workers.contexts.clear();
    Workers again(next, 2);
    check_exact_rounds<std::int32_t>(again, SWITCHML_INT32, 1, 1000);
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
    CHECK_MENTIONS(failure.what(), "max_outstanding_packets=252");
    CHECK_EQ(first.get().status, SWITCHML_ETIMEDOUT);
}

TEST(a_dead_session_does_not_block_the_next) {
    Switch net;
    for (int round = 0; round < 3; ++round) {
        // Rank 0 of a session whose other worker never comes gives up or is still waiting when the next one starts.
        const Configure brief = [](switchml_config &config) {
            config.connect_timeout_ms = 2000;  // also on a machine that is busy
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
    CHECK_EQ(json_number(read(), "slots_completed"), 5U);
    std::remove(path.c_str());
}

TEST(node_exporter_sees_counters_and_sessions) {
    const std::string path = "/tmp/test_sessions." + std::to_string(getpid()) + ".prom";
    const auto read = [&path] {
        std::ifstream file(path);
        return std::string{std::istreambuf_iterator<char>(file), {}};
    };
    Switch net({"--metrics-file", path});
    CHECK_MENTIONS(read(), "\nswitchml_switch_sessions 0\n");
    {
        Workers workers(net, 2, job_named("scraped", 4000));
        check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 1, 1000);
        const auto begin = Clock::now();
        std::string text;
        while (text.find("switchml_switch_slots_completed_total 5\n") == std::string::npos) {  // of its next writing
            CHECK(seconds_since(begin) < 20);
            text = read();
        }
        CHECK_MENTIONS(text, "\nswitchml_switch_sessions 1\n");
        CHECK_MENTIONS(text, "job=\"scraped\"} 2\n");
    }
    net.stop();
    CHECK_EQ(read(), "");
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
