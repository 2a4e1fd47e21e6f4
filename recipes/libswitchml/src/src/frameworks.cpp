// SPDX-License-Identifier: BSD-3-Clause
//
// What integrations of frameworks share beside the sums: what their ranks must
// have alike, why they cannot go on together, and how the library describes
// itself. Texts alone, of what is handed in.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "switchml.h"

namespace {

using Ranks = std::vector<std::uint32_t>;

// As snprintf hands a text to its caller.
template <class Make>
std::size_t hand_out(char *text, std::size_t size, Make &&make) noexcept {
    try {
        const std::string made = make();
        if (size > 0) {
            const std::size_t written = std::min(made.size(), size - 1);
            std::memcpy(text, made.data(), written);
            text[written] = '\0';
        }
        return made.size();
    } catch (...) {  // out of memory
        return SIZE_MAX;
    }
}

struct Report {
    std::string error;
    std::vector<std::pair<std::string, std::string>> facts;
};

Report parse_report(const char *text) {
    std::istringstream lines(text);
    Report report;
    std::getline(lines, report.error);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t tab = line.find('\t');
        if (tab != std::string::npos) report.facts.emplace_back(line.substr(0, tab), line.substr(tab + 1));
    }
    return report;
}

std::string name_ranks(const Ranks &ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    return text;
}

// Ranks by what they said, in the order of the lowest of each.
class Groups {
  public:
    void add(const std::string &text, std::uint32_t rank) {
        for (auto &[known, ranks] : groups_) {
            if (known == text) return ranks.push_back(rank);
        }
        groups_.push_back({text, {rank}});
    }

    const std::vector<std::pair<std::string, Ranks>> &all() const { return groups_; }

  private:
    std::vector<std::pair<std::string, Ranks>> groups_;
};

std::string join(const std::vector<std::string> &parts, const char *between) {
    std::string text;
    for (const std::string &part : parts) text += (text.empty() ? "" : between) + part;
    return text;
}

std::string in_seconds(std::uint32_t timeout_ms) {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text << timeout_ms / 1000.0 << " s";
    return text.str();
}

std::vector<std::string> differences(const std::map<std::uint32_t, Report> &reports) {
    std::map<std::string, Groups> facts;
    for (const auto &[rank, report] : reports) {
        for (const auto &[name, value] : report.facts) facts[name].add(value, rank);
    }
    std::vector<std::string> result;
    for (const auto &[name, groups] : facts) {
        if (groups.all().size() < 2) continue;
        std::vector<std::string> found;
        for (const auto &[value, ranks] : groups.all()) found.push_back("'" + value + "' on " + name_ranks(ranks));
        result.push_back(name + " must be the same on all ranks, but is " + join(found, ", "));
    }
    return result;
}

std::string compare(const char *const *texts, std::uint32_t num_workers, std::uint32_t timeout_ms) {
    std::map<std::uint32_t, Report> reports;
    Groups errors;
    Ranks missing;
    for (std::uint32_t rank = 0; rank < num_workers; ++rank) {
        if (texts[rank] == nullptr) {
            missing.push_back(rank);
            continue;
        }
        const Report &report = reports[rank] = parse_report(texts[rank]);
        if (!report.error.empty()) errors.add(report.error, rank);
    }
    std::vector<std::string> complaints;
    for (const auto &[error, ranks] : errors.all()) complaints.push_back(name_ranks(ranks) + ": " + error);
    if (!missing.empty()) {
        complaints.push_back(name_ranks(missing) + " did not report within " + in_seconds(timeout_ms) +
                             ": is SwitchML installed there, and SWITCHML_CONTROLLER set, and has the rank ended an "
                             "earlier group on this store?");
    }
    return join(complaints.empty() ? differences(reports) : complaints, "; ");
}

std::string quote(const std::string &text) {
    std::string result = "\"";
    for (const char character : text) {
        const auto code = static_cast<unsigned char>(character);
        if (code < 0x20) {
            std::array<char, 8> escaped{};
            std::snprintf(escaped.data(), escaped.size(), "\\u%04x", code);
            result += escaped.data();
        } else {
            if (character == '"' || character == '\\') result += '\\';
            result += character;
        }
    }
    return result + "\"";
}

std::string path_of_library() {
    Dl_info info{};
    const bool known = dladdr(reinterpret_cast<const void *>(&switchml_abi_version), &info) != 0;
    return known && info.dli_fname != nullptr ? info.dli_fname : "";
}

struct Counter {
    const char *name;
    std::size_t offset;
};

constexpr std::array kCounters{
    Counter{"jobs_submitted", offsetof(switchml_stats, jobs_submitted)},
    Counter{"jobs_completed", offsetof(switchml_stats, jobs_completed)},
    Counter{"jobs_failed", offsetof(switchml_stats, jobs_failed)},
    Counter{"elements_reduced", offsetof(switchml_stats, elements_reduced)},
    Counter{"packets_sent", offsetof(switchml_stats, packets_sent)},
    Counter{"packets_received", offsetof(switchml_stats, packets_received)},
    Counter{"packets_retransmitted", offsetof(switchml_stats, packets_retransmitted)},
    Counter{"packets_discarded", offsetof(switchml_stats, packets_discarded)},
    Counter{"receive_buffer_wanted", offsetof(switchml_stats, receive_buffer_wanted)},
    Counter{"receive_buffer_granted", offsetof(switchml_stats, receive_buffer_granted)},
};

}  // namespace

extern "C" {

size_t switchml_common_settings(const switchml_config *resolved, char *text, size_t size) {
    return hand_out(text, size, [&] {
        const auto line = [](const char *name, const std::string &value) { return name + ("\t" + value) + "\n"; };
        const bool has_controller = resolved->controller != nullptr;
        return line("the transport of libswitchml", switchml_transport()) +
               (has_controller ? line("SWITCHML_CONTROLLER", resolved->controller) : "") +
               line("SWITCHML_MAX_OUTSTANDING_PACKETS", std::to_string(resolved->max_outstanding_packets)) +
               line("SWITCHML_NUM_THREADS", std::to_string(resolved->num_threads)) +
               line("SWITCHML_PACKET_NUMEL", std::to_string(resolved->packet_numel)) +
               line("SWITCHML_WORKER_PORT", std::to_string(resolved->worker_port));
    });
}

size_t switchml_compare_reports(const char *const *reports, uint32_t num_workers, uint32_t timeout_ms, char *text,
                                size_t size) {
    return hand_out(text, size, [&] { return compare(reports, num_workers, timeout_ms); });
}

size_t switchml_describe_library(char *text, size_t size) {
    return hand_out(text, size, [] {
        return "{\"path\": " + quote(path_of_library()) + ", \"version\": " + quote(switchml_version()) +
               ", \"transport\": " + quote(switchml_transport()) +
               ", \"abi_version\": " + std::to_string(switchml_abi_version()) + "}";
    });
}

size_t switchml_describe_stats(const switchml_stats *stats, char *text, size_t size) {
    return hand_out(text, size, [&] {
        std::vector<std::string> members;
        for (const Counter &counter : kCounters) {
            std::uint64_t value = 0;
            if (counter.offset + sizeof value > stats->struct_size) break;
            std::memcpy(&value, reinterpret_cast<const char *>(stats) + counter.offset, sizeof value);
            members.push_back(quote(counter.name) + ": " + std::to_string(value));
        }
        return "{" + join(members, ", ") + "}";
    });
}

}  // extern "C"
