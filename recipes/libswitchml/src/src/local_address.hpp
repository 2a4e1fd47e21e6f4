// SPDX-License-Identifier: BSD-3-Clause
//
// Which address a worker sends from.
#pragma once

#include <cstdint>

#include "settings.hpp"

namespace switchml {

// The configured address, else the one that the kernel routes to the controller
// from; on IPv4's loopback one of the rank's own, since the switch tells workers
// apart by source address. Error EUNREACHABLE when the controller's name has no address.
wire::IpAddress choose_local_address(const Settings &settings);

// UDP port of thread 0. Workers on ::1, the only loopback address of IPv6, have ports of their own instead of
// addresses: those of rank r begin num_threads * r after worker_port. Error ECONFIG when there are none so high.
std::uint16_t first_port(const Settings &settings, const wire::IpAddress &local_address);

}  // namespace switchml
