// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLReport.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace c10d {
namespace switchml_detail {

namespace {

constexpr uint64_t kElementBytes = 4;  // float32 and int32 alike
// of the package that this is part of; a test compares
constexpr const char *kVersion = "1.0.0";

std::string quote(const std::string &text) {
    std::string result = "\"";
    for (const char character : text) {
        const auto code = static_cast<unsigned char>(character);
        if (code < 0x20) {
            std::array<char, 8> escaped{};
            std::snprintf(escaped.data(), escaped.size(), "\\u%04x", code);
            result += escaped.data();
        } else {
            result += character == '"' || character == '\\' ? "\\" : "";
            result += character;
        }
    }
    return result + "\"";
}

std::string member(const std::string &name, const std::string &json) { return quote(name) + ": " + json; }

std::string member(const std::string &name, uint64_t value) { return member(name, std::to_string(value)); }

std::string describeDelegated() {
    std::string text;
    for (size_t i = 0; i < kDtypes.size(); ++i) {
        const uint64_t elements = counters().elements[i];
        text += (i != 0 ? ", " : "") +
                member(kDtypes[i], "{" + member("jobs", counters().jobs[i]) + ", " + member("elements", elements) +
                                       ", " + member("bytes", elements * kElementBytes) + "}");
    }
    return "{" + text + "}";
}

std::string describeFallbacks() {
    std::string text;
    for (size_t i = 0; i < kFallbacks.size(); ++i) {
        text += (i != 0 ? ", " : "") + member(kFallbacks[i], counters().fallbacks[i]);
    }
    return "{" + text + "}";
}

}  // namespace

Counters &counters() {
    static Counters instance;
    return instance;
}

std::string composeReport(const SessionReport *session) {
    const char *const next = ",\n  ";
    std::string text = "{\n  " + member("schema", 1) + next + member("version", quote(kVersion)) + next +
                       member("active", session != nullptr ? "true" : "false") + next;
    if (session != nullptr) {
        text += member("rank", static_cast<uint64_t>(session->rank)) + next +
                member("world_size", static_cast<uint64_t>(session->size)) + next +
                member("controller", quote(session->controller)) + next + member("library", session->library) + next +
                member("failure", session->failure.empty() ? "null" : quote(session->failure)) + next +
                member("transport", session->transport) + next;
    }
    return text + member("delegated", describeDelegated()) + next + member("fallbacks", describeFallbacks()) + next +
           member("failed_jobs", counters().failed) + next + member("copied_jobs", counters().copied) + "\n}\n";
}

void writeReport(const std::string &path, const std::string &report) {
    const std::string draft = path + "." + std::to_string(getpid()) + ".part";
    std::FILE *const file = std::fopen(draft.c_str(), "w");
    bool good = file != nullptr;
    good = good && std::fputs(report.c_str(), file) >= 0;
    good = (file == nullptr || std::fclose(file) == 0) && good;
    good = good && std::rename(draft.c_str(), path.c_str()) == 0;
    if (!good) {
        std::fprintf(stderr, "SwitchML: cannot write SWITCHML_STATS_FILE %s: %s\n", path.c_str(), std::strerror(errno));
        std::remove(draft.c_str());
    }
}

}  // namespace switchml_detail
}  // namespace c10d
