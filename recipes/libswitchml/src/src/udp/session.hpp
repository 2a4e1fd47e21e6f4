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

}  // namespace switchml::udp
