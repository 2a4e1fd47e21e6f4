// SPDX-License-Identifier: BSD-3-Clause
//
// What a session runs with: the caller's struct, then the environment, then the
// defaults, checked here and nowhere else.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "switchml.h"
#include "wire/address.hpp"

namespace switchml {

struct Settings {
    std::uint32_t rank = 0;
    std::uint32_t num_workers = 0;
    std::string controller_host;  // a name or an address, without brackets
    std::uint16_t controller_port = 0;
    std::optional<wire::IpAddress> local_address;  // nothing: chosen by the route to the controller
    std::uint16_t worker_port = 0;                 // of thread 0; thread t uses worker_port + t
    std::uint32_t num_threads = 0;
    std::uint32_t max_outstanding_packets = 0;  // all threads together, a multiple of num_threads
    std::uint32_t packet_numel = 0;
    std::uint32_t retransmit_timeout_us = 0;
    std::uint32_t connect_timeout_ms = 0;
    std::uint32_t job_timeout_ms = 0;
    bool segment_offload = true;
    std::function<bool()> is_cancelled;  // whether nobody waits for the opening any longer; empty: never
    std::string job_name;                // empty: none
    // Paths for the controller's connection; empty: without.
    std::string token_file;
    std::string session_token_file;
    std::string tls_ca;
    std::string tls_cert;  // with tls_key, and only where tls_ca is
    std::string tls_key;
};

// Error EABORTED where it is cancelled. While the session opens only: its caller need not keep is_cancelled longer.
void check_not_cancelled(const Settings &settings);

// Nothing for a variable that is not set; an empty one counts as not set.
using Environment = std::function<std::optional<std::string>(const char *name)>;

std::optional<std::string> process_environment(const char *name);

// Error: EINVAL for what the caller passed, ECONFIG for what the environment says or lacks.
Settings resolve_settings(const switchml_config &config, const Environment &environment, bool needs_controller = true,
                          std::uint32_t default_window = 256);

// "host:port" of the controller, an IPv6 address in brackets.
std::string controller_target(const Settings &settings);

// The token and the certificates alone. Error: ECONFIG for files that make no sense without others.
void resolve_access(const Environment &environment, Settings &settings);

}  // namespace switchml
