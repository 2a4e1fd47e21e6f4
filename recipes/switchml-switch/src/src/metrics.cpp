// SPDX-License-Identifier: BSD-3-Clause
#include "metrics.hpp"

#include <cstdint>
#include <utility>

namespace switchml::softswitch {
namespace {

using Labels = std::vector<std::pair<const char *, std::string>>;

std::string escaped(const std::string &value) {
    std::string text;
    for (const char c : value) {
        if (c == '\\' || c == '"') text += '\\';
        text += c == '\n' ? "\\n" : std::string(1, c);
    }
    return text;
}

// One metric: its head, then a line for each set of labels.
class Metric {
  public:
    Metric(std::string &text, const char *type, const char *name, const char *help)
        : text_(text), name_(std::string("switchml_switch_") + name) {
        text_ += "# HELP " + name_ + " " + help + "\n# TYPE " + name_ + " " + type + "\n";
    }

    Metric &add(const Labels &labels, const std::string &value) {
        text_ += name_;
        for (const auto &[label, content] : labels) {
            text_ +=
                (&content == &labels.front().second ? "{" : ",") + std::string(label) + "=\"" + escaped(content) + "\"";
        }
        text_ += (labels.empty() ? " " : "} ") + value + "\n";
        return *this;
    }

    Metric &add(const Labels &labels, std::uint64_t value) { return add(labels, std::to_string(value)); }

  private:
    std::string &text_;
    std::string name_;
};

void add_counters(std::string &text, const Counters &counters) {
    const auto count = [&](const char *name, std::uint64_t value, const char *help) {
        Metric(text, "counter", name, help).add({}, value);
    };
    count("sessions_opened_total", counters.sessions_opened, "Sessions that a rank 0 opened.");
    count("packets_received_total", counters.packets_received, "Datagrams received, dropped ones included.");
    const DropCounters &dropped = counters.packets_dropped;
    Metric(text, "counter", "packets_dropped_total", "Packets received and dropped.")
        .add({{"reason", "malformed"}}, dropped.malformed)
        .add({{"reason", "unknown_worker"}}, dropped.unknown_worker)
        .add({{"reason", "bad_slot"}}, dropped.bad_slot)
        .add({{"reason", "stale"}}, dropped.stale)
        .add({{"reason", "injected"}}, counters.packet_faults.dropped);
    count("slots_completed_total", counters.slots_completed, "Times that a slot had the packets of all workers.");
    count("elements_aggregated_total", counters.elements_aggregated, "Values in completed slots.");
    count("results_sent_total", counters.results_sent, "Result packets sent, repeated ones included.");
    count("results_undeliverable_total", counters.results_undeliverable, "Times that the system refused a result.");
    count("results_dropped_total", counters.result_faults.dropped, "Results that were dropped for a test.");
    Metric faults(text, "counter", "faults_injected_total", "Faults injected for a test, apart from drops.");
    for (const auto &[direction, injected] :
         {std::pair{"packets", counters.packet_faults}, {"results", counters.result_faults}}) {
        faults.add({{"direction", direction}, {"kind", "duplicated"}}, injected.duplicated)
            .add({{"direction", direction}, {"kind", "delayed"}}, injected.delayed)
            .add({{"direction", direction}, {"kind", "reordered"}}, injected.reordered);
    }
}

std::string seconds(std::chrono::milliseconds time) {
    const std::string milliseconds = std::to_string(1000 + time.count() % 1000);
    return std::to_string(time.count() / 1000) + "." + milliseconds.substr(1);
}

void add_sessions(std::string &text, const std::vector<SessionState> &sessions) {
    Metric(text, "gauge", "sessions", "Sessions that stand.").add({}, sessions.size());
    const auto labels = [](const SessionState &session) {
        return Labels{{"session", std::to_string(session.id)}, {"job", session.job}};
    };
    Metric expected(text, "gauge", "session_workers_expected", "Workers that the session is for.");
    for (const auto &session : sessions) expected.add(labels(session), session.num_workers);
    Metric joined(text, "gauge", "session_workers", "Workers that are in the session and have not ended it.");
    for (const auto &session : sessions) joined.add(labels(session), session.present);
    Metric lease(text, "gauge", "session_lease_seconds", "Until the session gives way if nothing is heard of it.");
    for (const auto &session : sessions) lease.add(labels(session), seconds(session.lease_left));
}

}  // namespace

std::string to_prometheus(const Counters &counters, const std::vector<SessionState> &sessions) {
    std::string text;
    add_counters(text, counters);
    Metric(text, "gauge", "receive_buffer_bytes", "Receive buffer that the system granted.")
        .add({}, counters.receive_buffer_bytes);
    add_sessions(text, sessions);
    return text;
}

}  // namespace switchml::softswitch
