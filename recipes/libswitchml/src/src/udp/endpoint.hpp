// SPDX-License-Identifier: BSD-3-Clause
//
// The sockets of a worker, bound to the address it sends from.
#pragma once

#include <vector>

#include "settings.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::udp {

// One socket per thread at first_port + thread. Error ECONFIG for an address
// that is not this host's, EIO for a port in use.
std::vector<wire::UdpSocket> bind_sockets(const Settings &settings, const wire::Endpoint &first);

}  // namespace switchml::udp
