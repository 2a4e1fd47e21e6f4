// SPDX-License-Identifier: BSD-3-Clause
//
// What differs between the backends of the published library; one of
// backend_dummy.cpp, backend_dpdk.cpp and backend_rdma.cpp is compiled.
#pragma once

#include <optional>
#include <string>

#include "error.hpp"
#include "published/configuration.hpp"
#include "settings.hpp"

namespace switchml::published {

// Fills in config.backend_; Error ECONFIG.
void configure_backend(const Settings &settings, const ConfigurationFile &file, const Environment &environment,
                       Config &config);

// Error where this host plainly lacks what the backend needs, before anything is started.
void check_host();

// The error for what the published library said as it was started, where the backend knows more of it; nothing where
// its message says enough.
std::optional<Error> explain_start(const std::string &message, const Config &config);

}  // namespace switchml::published
