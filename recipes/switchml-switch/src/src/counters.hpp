// SPDX-License-Identifier: BSD-3-Clause
//
// What the switch counted, and its JSON. README.md says what each number means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/udp_socket.hpp"

namespace switchml::softswitch {

struct WorkerCounters {
    wire::IpAddress ip;  // unspecified: not registered yet
    std::uint64_t packets = 0;
    std::uint64_t bytes = 0;
    std::uint64_t retransmitted_results = 0;
};

struct DropCounters {
    std::uint64_t malformed = 0;
    std::uint64_t unknown_worker = 0;
    std::uint64_t bad_slot = 0;
    std::uint64_t stale = 0;
};

// Faults of one direction that were injected, for tests.
struct FaultCounters {
    std::uint64_t dropped = 0;
    std::uint64_t duplicated = 0;
    std::uint64_t delayed = 0;
    std::uint64_t reordered = 0;
};

// What was dropped of one source, or of several.
struct SourceDrops {
    std::uint64_t unknown_worker = 0;
    std::uint64_t malformed = 0;
};

struct DroppedSource {
    wire::Endpoint source;
    SourceDrops drops;
};

struct SourceReport {
    std::vector<DroppedSource> latest;  // the latest first
    SourceDrops others;                 // of the sources that had to make room
};

struct Counters {
    std::uint64_t sessions_opened = 0;
    std::uint64_t packets_received = 0;
    DropCounters packets_dropped;
    FaultCounters packet_faults;  // of packets received
    FaultCounters result_faults;  // of results sent
    SourceReport dropped_sources;
    std::uint64_t slots_completed = 0;
    std::uint64_t elements_aggregated = 0;
    std::uint64_t results_sent = 0;
    std::uint64_t results_undeliverable = 0;
    std::uint64_t receive_buffer_bytes = 0;
    std::uint32_t packet_numel = 0;       // of the latest session, 0 before the first
    std::vector<WorkerCounters> workers;  // of the latest session, by rank
};

// One line, keys in a fixed order.
std::string to_json(const Counters &counters);

// `text` for a message or a log: \xNN for each byte that is not printable ASCII, and two backslashes for one.
std::string printable(const std::string &text);

// `text` as a JSON string, quotes included.
std::string json_string(const std::string &text);

}  // namespace switchml::softswitch
