// SPDX-License-Identifier: BSD-3-Clause
//
// The counters in Prometheus' text format, version 0.0.4. README.md lists the names.
#pragma once

#include <string>
#include <vector>

#include "counters.hpp"
#include "leases.hpp"

namespace switchml::softswitch {

std::string to_prometheus(const Counters &counters, const std::vector<SessionState> &sessions);

}  // namespace switchml::softswitch
