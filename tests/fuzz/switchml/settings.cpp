// SPDX-License-Identifier: BSD-3-Clause
//
// A worker's settings: lines of NAME=VALUE for the environment; the first bytes
// are numbers of switchml_config.
#include "settings.hpp"

#include "error.hpp"
#include "input.hpp"
#include "limits.hpp"

using namespace switchml;

namespace {

// With room for what a later header may add.
struct Caller {
    switchml_config config;
    unsigned char newer[32];
};

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
    const Environment environment = fuzz::environment_of(input);
    try {
        fuzz::check(resolve_settings(config, environment), true);
    } catch (const Error &error) {
        REQUIRE(error.status() == SWITCHML_EINVAL || error.status() == SWITCHML_ECONFIG ||
                error.status() == SWITCHML_EUNSUPPORTED);
        REQUIRE(*error.what() != '\0');
    }
    return 0;
}
