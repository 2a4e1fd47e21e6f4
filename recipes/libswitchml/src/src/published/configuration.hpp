// SPDX-License-Identifier: BSD-3-Clause
//
// What the published client library is configured with. Users set the same
// variables as for the udp transport; what only its backends know comes from
// variables of its own or from a switchml.cfg, the file of the published
// programs. A variable wins over the file, and switchml_config over both.
#pragma once

#include "config.h"
#include "published/configuration_file.hpp"
#include "settings.hpp"

namespace switchml::published {

// The file that Config::FindFile names; one that says nothing when there is none. Error ECONFIG.
ConfigurationFile find_configuration();

// Error ECONFIG.
Config make_config(const Settings &settings, const ConfigurationFile &file, const Environment &environment);

}  // namespace switchml::published
