// SPDX-License-Identifier: BSD-3-Clause
//
// switchml.cfg, which the published client library is configured with. Input: the
// file, a zero, lines of NAME=VALUE for the environment, which wins over the file.
#include "published/configuration_file.hpp"

#include <array>
#include <cmath>
#include <optional>
#include <sstream>

#include "error.hpp"
#include "input.hpp"
#include "limits.hpp"

using namespace switchml;
using published::ConfigurationFile;

const char *published::backend_name() noexcept { return "dpdk"; }

namespace {

constexpr std::array kVariables{"SWITCHML_CONTROLLER", "SWITCHML_NUM_THREADS", "SWITCHML_RETRANSMIT_TIMEOUT_US",
                                "SWITCHML_LOCAL_ADDRESS", "SWITCHML_DPDK_PORT"};

// Nothing where it is an Error of the configuration's, which says something.
template <class Read>
auto unless_refused(const Read &read) -> std::optional<decltype(read())> {
    try {
        return read();
    } catch (const Error &error) {
        REQUIRE(error.status() == SWITCHML_ECONFIG && *error.what() != '\0');
        return std::nullopt;
    }
}

void check(const ConfigurationFile &file, const Environment &outside) {
    const Environment environment = file.beneath(outside);
    for (const char *variable : kVariables) {
        const auto set = outside(variable);
        if (set) REQUIRE(environment(variable) == set);
    }
    switchml_config config{};
    config.struct_size = sizeof config;
    config.num_workers = 2;
    const auto settings = unless_refused([&] { return resolve_settings(config, environment, false); });
    if (settings) fuzz::check(*settings, false);
    const auto port = unless_refused([&] { return file.number(environment, "backend.dpdk.port_id", 0, 65535); });
    REQUIRE(!port || *port <= 65535);
    const auto rate = unless_refused([&] { return file.decimal(environment, "backend.dummy.bandwidth", 0); });
    REQUIRE(!rate || (std::isfinite(*rate) && *rate >= 0));
    unless_refused([&] { return file.boolean(environment, "backend.dummy.process_packets", true); });
    const std::string cores = file.text(environment, "backend.dpdk.cores", "");
    if (const auto set = outside("SWITCHML_DPDK_CORES")) REQUIRE(cores == *set);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    fuzz::Input input(data, bytes);
    std::istringstream text(input.until('\0'));
    const Environment outside = fuzz::environment_of(input);
    const auto file = unless_refused([&] { return ConfigurationFile(text, "FILE"); });
    if (file) check(*file, outside);
    return 0;
}
