// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's settings: lines of NAME=VALUE for the environment; the first bytes
// are numbers of switchml_config.
#include "settings.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "error.hpp"
#include "input.hpp"

using namespace switchml;

namespace {

// With room for what a later header may add.
struct Caller {
    switchml_config config;
    unsigned char newer[32];
};

void check(const Settings &settings) {
    REQUIRE(settings.num_workers >= 1 && settings.num_workers <= 32 && settings.rank < settings.num_workers);
    REQUIRE(!settings.controller_host.empty() && settings.controller_port > 0);
    REQUIRE(settings.num_threads >= 1 && settings.num_threads <= 32 && settings.worker_port > 0);
    REQUIRE(settings.worker_port + settings.num_threads <= 65536);
    REQUIRE(settings.max_outstanding_packets % settings.num_threads == 0 && settings.max_outstanding_packets >= 1 &&
            settings.max_outstanding_packets <= 4096);
    REQUIRE(settings.packet_numel == 64 || settings.packet_numel == 256);
    REQUIRE(settings.retransmit_timeout_us > 0 && settings.connect_timeout_ms > 0 && settings.job_timeout_ms > 0);
    REQUIRE(settings.tls_cert.empty() == settings.tls_key.empty());
    REQUIRE(settings.tls_ca.empty() ? settings.tls_cert.empty() : true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    fuzz::Input input(data, bytes);
    Caller caller{};
    switchml_config &config = caller.config;
    config.struct_size = input.byte() % sizeof caller;
    caller.newer[0] = input.byte();
    config.rank = input.byte();
    config.num_workers = input.byte();
    config.worker_port = input.number(2);
    config.num_threads = input.byte();
    config.max_outstanding_packets = input.number(2);
    config.packet_numel = input.number(2);
    std::map<std::string, std::string> variables;
    while (input.left() > 0) {
        std::string line = input.until('\n');
        const std::size_t equals = std::min(line.find('='), line.size());
        const std::string value = equals < line.size() ? line.substr(equals + 1) : "";
        variables["SWITCHML_" + line.substr(0, equals)] = value.c_str();  // to the first zero, as the system's
    }
    const Environment environment = [&](const char *name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end() || found->second.empty()) return std::nullopt;
        return found->second;
    };
    try {
        check(resolve_settings(config, environment));
    } catch (const Error &error) {
        REQUIRE(error.status() == SWITCHML_EINVAL || error.status() == SWITCHML_ECONFIG ||
                error.status() == SWITCHML_EUNSUPPORTED);
        REQUIRE(*error.what() != '\0');
    }
    return 0;
}
