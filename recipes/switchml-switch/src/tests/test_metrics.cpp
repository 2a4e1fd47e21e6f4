// SPDX-License-Identifier: BSD-3-Clause
//
// The counters as Prometheus' text.
#include "metrics.hpp"

#include <chrono>
#include <string>

#include "wire/check.hpp"

using namespace switchml::softswitch;

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

CHECK_MAIN()
