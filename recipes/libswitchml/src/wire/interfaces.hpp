// SPDX-License-Identifier: BSD-3-Clause
//
// What the network interfaces of this host are.
#pragma once

#include <cstdint>

#include "address.hpp"

namespace switchml::wire {

// The hardware address of the interface that has this address, six bytes as one
// big-endian number; 0 where there is none (loopback).
std::uint64_t hardware_address(const IpAddress &local_address);

}  // namespace switchml::wire
