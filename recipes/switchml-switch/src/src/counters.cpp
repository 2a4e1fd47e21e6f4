// SPDX-License-Identifier: BSD-3-Clause
#include "counters.hpp"

#include <cstdio>

namespace switchml::softswitch {
namespace {

std::string field(const char *name, std::uint64_t value) {
    return std::string("\"") + name + "\": " + std::to_string(value);
}

std::string worker_json(std::size_t rank, const WorkerCounters &worker) {
    const std::string address = worker.ip.is_unspecified() ? "null" : "\"" + wire::to_text(worker.ip) + "\"";
    return "{" + field("rank", rank) + ", \"address\": " + address + ", " + field("packets", worker.packets) + ", " +
           field("bytes", worker.bytes) + ", " + field("retransmitted_results", worker.retransmitted_results) + "}";
}

std::string faults_json(const FaultCounters &faults) {
    return "{" + field("duplicated", faults.duplicated) + ", " + field("delayed", faults.delayed) + ", " +
           field("reordered", faults.reordered) + "}";
}

std::string drops_json(const SourceDrops &drops) {
    return field("unknown_worker", drops.unknown_worker) + ", " + field("malformed", drops.malformed);
}

std::string sources_json(const SourceReport &report) {
    std::string text = "{\"latest\": [";
    for (const DroppedSource &source : report.latest) {
        if (&source != &report.latest.front()) text += ", ";
        text += "{\"address\": \"" + wire::to_text(source.source) + "\", " + drops_json(source.drops) + "}";
    }
    return text + "], \"others\": {" + drops_json(report.others) + "}}";
}

}  // namespace

std::string printable(const std::string &text) {
    std::string shown;
    for (const char c : text) {
        if (c == '\\') {
            shown += "\\\\";
        } else if (c < ' ' || c > '~') {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
            shown += escape;
        } else {
            shown += c;
        }
    }
    return shown;
}

std::string json_string(const std::string &text) {
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            quoted += escape;
        } else {
            quoted += c;
        }
    }
    return quoted + "\"";
}

std::string to_json(const Counters &counters) {
    const DropCounters &dropped = counters.packets_dropped;
    std::string text =
        "{" + field("schema", 1) + ", " + field("sessions_opened", counters.sessions_opened) + ", " +
        field("num_workers", counters.workers.size()) + ", " + field("packet_numel", counters.packet_numel) + ", " +
        field("packets_received", counters.packets_received) + ", \"packets_dropped\": {" +
        field("malformed", dropped.malformed) + ", " + field("unknown_worker", dropped.unknown_worker) + ", " +
        field("bad_slot", dropped.bad_slot) + ", " + field("stale", dropped.stale) + ", " +
        field("injected", counters.packet_faults.dropped) + "}, " + field("slots_completed", counters.slots_completed) +
        ", " + field("elements_aggregated", counters.elements_aggregated) + ", " +
        field("results_sent", counters.results_sent) + ", " +
        field("results_dropped_injected", counters.result_faults.dropped) + ", " +
        field("results_undeliverable", counters.results_undeliverable) + ", " +
        "\"packets_injected\": " + faults_json(counters.packet_faults) +
        ", \"results_injected\": " + faults_json(counters.result_faults) + ", " +
        field("receive_buffer_bytes", counters.receive_buffer_bytes) +
        ", \"dropped_sources\": " + sources_json(counters.dropped_sources) + ", \"workers\": [";
    for (std::size_t rank = 0; rank < counters.workers.size(); ++rank) {
        if (rank > 0) text += ", ";
        text += worker_json(rank, counters.workers[rank]);
    }
    return text + "]}";
}

}  // namespace switchml::softswitch
