// SPDX-License-Identifier: BSD-3-Clause
//
// The sockets of a worker, bound to the address it sends from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "error.hpp"
#include "settings.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::udp {

// One socket per thread at first_port + thread. Error ECONFIG for an address
// that is not this host's, EIO for a port in use.
std::vector<wire::UdpSocket> bind_sockets(const Settings &settings, const wire::Endpoint &first);

// Why packets with so many bytes of payload do not pass to the switch, where the kernel answers EMSGSIZE.
Error too_large(const wire::Endpoint &data_plane, std::size_t packet_bytes);

// What a packet with so many bytes of payload has with the headers of IP and UDP.
std::size_t bytes_on_the_way(const wire::Endpoint &data_plane, std::size_t packet_bytes);

}  // namespace switchml::udp
