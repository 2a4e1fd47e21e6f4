// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's environment out of an input, and what holds of settings that nothing
// was found wrong with.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "input.hpp"
#include "settings.hpp"

namespace switchml::fuzz {

// The rest of the input as lines of NAME=VALUE; SWITCHML_ comes before the names.
inline Environment environment_of(Input &input) {
    std::map<std::string, std::string> variables;
    while (input.left() > 0) {
        const std::string line = input.until('\n');
        const std::size_t equals = std::min(line.find('='), line.size());
        const std::string value = equals < line.size() ? line.substr(equals + 1) : "";
        variables["SWITCHML_" + line.substr(0, equals)] = value.c_str();  // to the first zero, as the system's
    }
    return [variables](const char *name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end() || found->second.empty()) return std::nullopt;
        return found->second;
    };
}

inline void check(const Settings &settings, bool has_controller) {
    REQUIRE(settings.num_workers >= 1 && settings.num_workers <= 32 && settings.rank < settings.num_workers);
    if (has_controller) REQUIRE(!settings.controller_host.empty() && settings.controller_port > 0);
    REQUIRE(settings.num_threads >= 1 && settings.num_threads <= 32 && settings.worker_port > 0);
    REQUIRE(settings.worker_port + settings.num_threads <= 65536);
    REQUIRE(settings.max_outstanding_packets % settings.num_threads == 0 && settings.max_outstanding_packets >= 1 &&
            settings.max_outstanding_packets <= 4096);
    REQUIRE(settings.packet_numel == 64 || settings.packet_numel == 256);
    REQUIRE(settings.retransmit_timeout_us > 0 && settings.connect_timeout_ms > 0 && settings.job_timeout_ms > 0);
    REQUIRE(settings.tls_cert.empty() == settings.tls_key.empty());
    REQUIRE(settings.tls_ca.empty() ? settings.tls_cert.empty() : true);
}

}  // namespace switchml::fuzz
