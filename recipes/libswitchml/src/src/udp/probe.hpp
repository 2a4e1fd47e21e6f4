// SPDX-License-Identifier: BSD-3-Clause
//
// Whether packets pass between a worker and the switch, before its first job.
//
// The session is opened, and its lease renewed, over TCP: a firewall that lets that pass and no UDP, or a path that is
// too narrow for the packets, would show only as a job without results, which waits for its whole time limit.
#pragma once

#include <vector>

#include "settings.hpp"
#include "udp/session.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::udp {

// Returns once the switch has sent back a packet of each socket, at once where it answers no probes, as published
// switches. Connects the sockets to it. Error: EUNREACHABLE where none came back within connect_timeout_ms, EIO where
// the path takes no packets so large, EABORTED (cancelled).
void probe_path(const Settings &settings, const Session &session, std::vector<wire::UdpSocket> &sockets);

}  // namespace switchml::udp
