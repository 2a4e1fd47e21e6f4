// SPDX-License-Identifier: BSD-3-Clause
//
// The counters as text, and the server for scrapers against clients that do it wrong.
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "http_client.hpp"
#include "metrics.hpp"
#include "metrics_server.hpp"
#include "wire/check.hpp"

using namespace switchml;
using namespace switchml::softswitch;
using switchml::testing::kGet;
using Client = switchml::testing::HttpClient;

namespace {

using Clock = std::chrono::steady_clock;

constexpr wire::Endpoint kLoopback{0x7F000001, 0};

}  // namespace

TEST(counters_have_the_names_and_labels_of_prometheus) {
    Counters counters;
    counters.packets_received = 10;
    counters.packets_dropped = {1, 2, 3, 5};
    counters.packet_faults = {4, 12, 13, 14};
    counters.result_faults = {7, 15, 16, 17};
    const std::string text =
        to_prometheus(counters, {{18446744073709551615U, "a \"b\"\\\n", 4, 3, std::chrono::milliseconds(19050)}});
    CHECK_MENTIONS(text, "# HELP switchml_switch_packets_received_total ");
    CHECK_MENTIONS(
        text, "# TYPE switchml_switch_packets_received_total counter\nswitchml_switch_packets_received_total 10\n");
    CHECK_MENTIONS(text, "\nswitchml_switch_packets_dropped_total{reason=\"malformed\"} 1\n");
    CHECK_MENTIONS(text, "\nswitchml_switch_packets_dropped_total{reason=\"injected\"} 4\n");
    CHECK_MENTIONS(text, "\nswitchml_switch_faults_injected_total{direction=\"results\",kind=\"delayed\"} 16\n");
    CHECK_MENTIONS(text, "\nswitchml_switch_results_dropped_total 7\n");
    CHECK_MENTIONS(text, "# TYPE switchml_switch_sessions gauge\nswitchml_switch_sessions 1\n");
    CHECK_MENTIONS(text, "session_workers{session=\"18446744073709551615\",job=\"a \\\"b\\\"\\\\\\n\"} 3\n");
    CHECK_MENTIONS(text, "session_lease_seconds{session=\"18446744073709551615\",job=\"a \\\"b\\\"\\\\\\n\"} 19.050\n");
    CHECK_EQ(text.back(), '\n');
}

TEST(a_scraper_gets_the_text) {
    int rendered = 0;
    const MetricsServer server({kLoopback}, [&] { return "count " + std::to_string(++rendered) + "\n"; });
    const std::string response = Client(server.local()).say(kGet).hear();
    CHECK_EQ(response.substr(0, 17), "HTTP/1.1 200 OK\r\n");
    CHECK_MENTIONS(response, "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n");
    CHECK_MENTIONS(response, "\r\nContent-Length: 8\r\n");
    CHECK_MENTIONS(response, "\r\n\r\ncount 1\n");
    CHECK_MENTIONS(Client(server.local()).say("GET /metrics?x HTTP/1.1\r").say("\n\r\n").hear(), "200 OK");
    const std::string head = Client(server.local()).say("HEAD /metrics HTTP/1.1\r\n\r\n").hear();
    CHECK_EQ(head.substr(head.size() - 4), "\r\n\r\n");
}

TEST(scrapes_in_a_row_ask_the_switch_once) {
    int rendered = 0;
    MetricsOptions options{kLoopback};
    options.freshness = std::chrono::hours(1);
    const MetricsServer server(options, [&] { return "count " + std::to_string(++rendered) + "\n"; });
    for (int i = 0; i < 50; ++i) CHECK_MENTIONS(Client(server.local()).say(kGet).hear(), "count 1\n");
}

TEST(other_requests_are_refused) {
    const MetricsServer server({kLoopback}, [] { return std::string("text\n"); });
    CHECK_MENTIONS(Client(server.local()).say("GET / HTTP/1.1\r\n\r\n").hear(), "HTTP/1.1 404 ");
    CHECK_MENTIONS(Client(server.local()).say("POST /metrics HTTP/1.1\r\n\r\n").hear(), "HTTP/1.1 405 ");
    CHECK_MENTIONS(Client(server.local()).say("nonsense\r\n\r\n").hear(), "HTTP/1.1 400 ");
    CHECK_MENTIONS(Client(server.local()).say(std::string(8300, 'x')).hear(), "HTTP/1.1 431 ");
}

TEST(a_failure_is_503) {
    const MetricsServer server({kLoopback}, []() -> std::string { throw std::runtime_error("the socket is gone"); });
    const std::string response = Client(server.local()).say(kGet).hear();
    CHECK_MENTIONS(response, "HTTP/1.1 503 ");
    CHECK_MENTIONS(response, "the socket is gone");
}

TEST(clients_that_say_nothing_make_room_in_time) {
    MetricsOptions options{kLoopback};
    options.timeout = std::chrono::milliseconds(500);
    const MetricsServer server(options, [] { return std::string("text\n"); });
    std::vector<std::unique_ptr<Client>> silent;
    for (std::size_t i = 0; i < 2 * MetricsServer::kMaxConnections; ++i) {
        silent.push_back(std::make_unique<Client>(server.local()));
        silent.back()->say("GET /met");
    }
    const auto start = Clock::now();
    CHECK_MENTIONS(Client(server.local()).say(kGet).hear(), "200 OK");
    CHECK(Clock::now() - start < std::chrono::seconds(8));
    for (auto &client : silent) CHECK_EQ(client->hear(), "");
}

TEST(a_port_in_use_is_named) {
    const MetricsServer server({kLoopback}, [] { return std::string(); });
    try {
        const MetricsServer second({server.local()}, [] { return std::string(); });
    } catch (const std::exception &error) {
        CHECK_MENTIONS(error.what(), wire::to_text(server.local()));
        CHECK_MENTIONS(error.what(), "metrics");
        return;
    }
    throw check::Failed("two servers share a port");
}

CHECK_MAIN()
