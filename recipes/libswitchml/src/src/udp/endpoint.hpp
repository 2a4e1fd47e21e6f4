// SPDX-License-Identifier: BSD-3-Clause
//
// Which address a worker sends from, and the sockets bound to it.
#pragma once

#include <cstdint>
#include <vector>

#include "settings.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::udp {

// The configured address, else the one that the kernel routes to the controller
// from; on loopback one of the rank's own, since the switch tells workers apart
// by source address. Error EUNREACHABLE when the controller's name has no IPv4 address.
std::uint32_t choose_local_address(const Settings &settings);

// One socket per thread at worker_port + thread. Error ECONFIG for an address
// that is not this host's, EIO for a port in use.
std::vector<wire::UdpSocket> bind_sockets(const Settings &settings, std::uint32_t local_address);

// The hardware address of the interface that has this address, six bytes as one
// big-endian number; 0 where there is none (loopback).
std::uint64_t hardware_address(std::uint32_t local_address);

}  // namespace switchml::udp
