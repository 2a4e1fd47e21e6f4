// SPDX-License-Identifier: BSD-3-Clause
//
// What the environment asks for: the only place that knows the variables'
// names. Those of the transport itself are read by libswitchml; here they
// matter only where all ranks must have the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace c10d {
namespace switchml_detail {

// Names with values that must be the same on all ranks.
using Facts = std::vector<std::pair<std::string, std::string>>;

bool isRequested();

struct Settings {
  std::string controller;
  std::string library = "libswitchml.so.1";
  std::string statsFile;
  // the library's defaults (switchml.h), needed to bound the wait for others
  uint32_t connectLimitMs = 10000;
  uint32_t jobLimitMs = 30000;
  bool jobLimitSet = false;
  Facts common;

  // Throws std::runtime_error that names a variable with an unusable value.
  static Settings read();

  // The environment's limit, else the default or the group's own if shorter.
  uint32_t jobTimeoutMs(std::chrono::milliseconds groupTimeout) const;

  // How long a rank may take to report what it came to.
  std::chrono::milliseconds patience() const;

  // Where this rank reports to, "{rank}" filled in; empty for nowhere.
  std::string statsPath(int rank) const;
};

} // namespace switchml_detail
} // namespace c10d
