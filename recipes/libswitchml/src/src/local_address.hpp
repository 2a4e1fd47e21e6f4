// SPDX-License-Identifier: BSD-3-Clause
//
// Which address a worker sends from.
#pragma once

#include <cstdint>

#include "settings.hpp"

namespace switchml {

// The configured address, else the one that the kernel routes to the controller
// from; on loopback one of the rank's own, since the switch tells workers apart
// by source address. Error EUNREACHABLE when the controller's name has no IPv4 address.
std::uint32_t choose_local_address(const Settings &settings);

}  // namespace switchml
