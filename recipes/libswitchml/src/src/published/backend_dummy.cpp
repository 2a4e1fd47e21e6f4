// SPDX-License-Identifier: BSD-3-Clause
#include "published/backend.hpp"
#include "transport.hpp"

namespace switchml {

bool transport_has_controller() noexcept { return false; }

namespace published {

const char *backend_name() noexcept { return "dummy"; }

void configure_backend(const Settings &, const ConfigurationFile &file, const Environment &environment,
                       Config &config) {
    DummyBackendConfig &dummy = config.backend_.dummy;
    // The published default makes it wait as if for a network of 1 Gb/s.
    dummy.bandwidth = static_cast<float>(file.decimal(environment, "backend.dummy.bandwidth", 0));
    dummy.process_packets = file.boolean(environment, "backend.dummy.process_packets", true);
}

void check_host() {}

std::optional<Error> explain_start(const std::string &, const Config &) { return std::nullopt; }

}  // namespace published
}  // namespace switchml
