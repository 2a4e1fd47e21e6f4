// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLSettings.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

namespace c10d {
namespace switchml_detail {

namespace {

enum class Switch { kOn, kOff, kMalformed };

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string trimmed(const std::string& text) {
  const char* const blank = " \t\r\n";
  const auto begin = text.find_first_not_of(blank);
  const auto end = text.find_last_not_of(blank);
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

Switch switchOf(const char* name) {
  std::string text = trimmed(variable(name));
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (const char* const on : {"", "1", "on", "true", "yes"}) {
    if (text == on) {
      return Switch::kOn;
    }
  }
  for (const char* const off : {"0", "off", "false", "no"}) {
    if (text == off) {
      return Switch::kOff;
    }
  }
  return Switch::kMalformed;
}

[[noreturn]] void refuse(const char* name, const std::string& expected) {
  throw std::runtime_error(
      std::string(name) + "='" + variable(name) + "': expected " + expected +
      "; correct it, or unset it for the default");
}

uint32_t milliseconds(const char* name, uint32_t otherwise) {
  const std::string text = variable(name);
  if (text.empty()) {
    return otherwise;
  }
  const bool digits = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= '0' && c <= '9';
  });
  const unsigned long long value =
      digits && text.size() <= 10 ? std::stoull(text) : 0;
  if (value == 0 || value > UINT32_MAX) {
    refuse(name, "a whole number of milliseconds above 0");
  }
  return static_cast<uint32_t>(value);
}

} // namespace

bool isRequested() {
  return !trimmed(variable("SWITCHML_CONTROLLER")).empty() &&
      switchOf("SWITCHML_ENABLE") != Switch::kOff;
}

Settings Settings::read() {
  if (switchOf("SWITCHML_ENABLE") == Switch::kMalformed) {
    refuse("SWITCHML_ENABLE", "1 or 0");
  }
  Settings settings;
  settings.controller = trimmed(variable("SWITCHML_CONTROLLER"));
  settings.statsFile = variable("SWITCHML_STATS_FILE");
  const std::string library = variable("SWITCHML_LIBRARY");
  if (!library.empty()) {
    settings.library = library;
  }
  settings.connectLimitMs =
      milliseconds("SWITCHML_CONNECT_TIMEOUT_MS", settings.connectLimitMs);
  settings.jobLimitMs =
      milliseconds("SWITCHML_JOB_TIMEOUT_MS", settings.jobLimitMs);
  settings.jobLimitSet = !variable("SWITCHML_JOB_TIMEOUT_MS").empty();
  // all workers use a slot of the switch in the same way
  for (const char* const name :
       {"SWITCHML_MAX_OUTSTANDING_PACKETS",
        "SWITCHML_NUM_THREADS",
        "SWITCHML_PACKET_NUMEL",
        "SWITCHML_WORKER_PORT"}) {
    settings.common.emplace_back(name, variable(name));
  }
  return settings;
}

uint32_t Settings::jobTimeoutMs(std::chrono::milliseconds groupTimeout) const {
  if (jobLimitSet || groupTimeout.count() <= 0) {
    return jobLimitMs;
  }
  return static_cast<uint32_t>(
      std::min<int64_t>(jobLimitMs, groupTimeout.count()));
}

std::chrono::milliseconds Settings::patience() const {
  // ranks come here out of gloo's rendezvous, so they are not far apart
  constexpr int64_t kMarginMs = 5000;
  return std::chrono::milliseconds(
      int64_t{connectLimitMs} + jobLimitMs + kMarginMs);
}

std::string Settings::statsPath(int rank) const {
  const std::string placeholder = "{rank}";
  std::string path = statsFile;
  for (size_t at = path.find(placeholder); at != std::string::npos;
       at = path.find(placeholder)) {
    path.replace(at, placeholder.size(), std::to_string(rank));
  }
  return path;
}

} // namespace switchml_detail
} // namespace c10d
