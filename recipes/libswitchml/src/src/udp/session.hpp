// SPDX-License-Identifier: BSD-3-Clause
//
// Session set-up with the switch controller, over gRPC.
#pragma once

#include <cstdint>

#include "settings.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::udp {

// Brings all workers into one session and returns where the switch takes packets.
// Blocks until every worker is in, at most connect_timeout_ms + job_timeout_ms.
// Error: EUNREACHABLE, EREFUSED, ETIMEDOUT (a worker is missing), ECONFIG (this
// worker's parameters differ from rank 0's).
wire::Endpoint open_session(const Settings &settings, std::uint32_t local_address);

// The session id: a time stamp of rank 0 in nanoseconds, whose low 18 bits carry
// the parameters that all workers must share and that no message has a field for.
// Controllers only compare ids, so published ones take it as it is.
std::uint64_t make_session_id(std::uint64_t time_ns, const Settings &settings);

// Error ECONFIG when rank 0's parameters in its session id differ from ours.
void check_session_id(std::uint64_t session_id, const Settings &settings);

}  // namespace switchml::udp
