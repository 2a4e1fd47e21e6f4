// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "wire/packet.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::softswitch {

struct Options {
    switchml::wire::IpAddress address;
    std::uint16_t data_port = wire::kDataPort;
    std::uint16_t controller_port = 50099;
    std::string stats_file;     // empty: none
    std::string metrics_file;   // empty: none; else it ends in .prom
    std::string token_file;     // empty: no token is asked for
    std::string tls_cert;       // empty: plaintext
    std::string tls_key;        // given with tls_cert and only then
    std::string tls_client_ca;  // empty: clients need no certificate
    double drop_rate = 0;
    double drop_result_rate = 0;
    double duplicate_rate = 0;
    double delay_rate = 0;
    std::uint32_t delay_ms = 10;
    double reorder_rate = 0;
    std::uint64_t seed = 0;
    std::uint32_t max_workers = wire::kMaxWorkers;
    std::uint32_t max_sessions = 8;
    std::uint32_t lease_ms = 20000;
    bool help = false;
    bool version = false;
};

class UsageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// UsageError names the option, what was given and what is expected.
Options parse_options(int argc, const char *const *argv);

extern const char *const kUsage;

}  // namespace switchml::softswitch
