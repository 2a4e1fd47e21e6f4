// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLSettings.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

namespace c10d {
namespace switchml_detail {

namespace {

constexpr int64_t kLongestTimeoutMs = 24LL * 3600 * 1000;  // that libswitchml takes

enum class Switch { kOn, kOff, kMalformed };

std::string variable(const char *name) {
    const char *const value = std::getenv(name);
    return value != nullptr ? value : "";
}

std::string trimmed(const std::string &text) {
    const char *const blank = " \t\r\n";
    const auto begin = text.find_first_not_of(blank);
    const auto end = text.find_last_not_of(blank);
    return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

Switch readEnable() {
    std::string text = trimmed(variable("SWITCHML_ENABLE"));
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const char *const on : {"", "1", "on", "true", "yes"}) {
        if (text == on) {
            return Switch::kOn;
        }
    }
    for (const char *const off : {"0", "off", "false", "no"}) {
        if (text == off) {
            return Switch::kOff;
        }
    }
    return Switch::kMalformed;
}

}  // namespace

bool isRequested() { return !trimmed(variable("SWITCHML_CONTROLLER")).empty() && readEnable() != Switch::kOff; }

void Settings::check() const {
    if (readEnable() == Switch::kMalformed) {
        throw std::runtime_error("SWITCHML_ENABLE='" + variable("SWITCHML_ENABLE") +
                                 "': expected 1 or 0; correct it, or unset it for the default");
    }
}

Settings Settings::read() {
    Settings settings;
    settings.statsFile = variable("SWITCHML_STATS_FILE");
    settings.jobName = variable("SWITCHML_JOB_NAME");
    settings.jobTimeoutSet = !variable("SWITCHML_JOB_TIMEOUT_MS").empty();
    const std::string library = variable("SWITCHML_LIBRARY");
    if (!library.empty()) {
        settings.library = library;
    }
    return settings;
}

uint32_t Settings::jobTimeoutMs(std::chrono::milliseconds groupTimeout) const {
    if (jobTimeoutSet || groupTimeout.count() <= 0) {
        return 0;
    }
    return static_cast<uint32_t>(std::min<int64_t>(kLongestTimeoutMs, groupTimeout.count()));
}

std::string Settings::statsPath(int rank) const {
    const std::string placeholder = "{rank}";
    std::string path = statsFile;
    for (size_t at = path.find(placeholder); at != std::string::npos; at = path.find(placeholder)) {
        path.replace(at, placeholder.size(), std::to_string(rank));
    }
    return path;
}

}  // namespace switchml_detail
}  // namespace c10d
