// SPDX-License-Identifier: BSD-3-Clause
//
// Session set-up with the switch controller, over gRPC.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>

#include "settings.hpp"
#include "wire/udp_socket.hpp"

namespace switchml {
class ControllerClient;
}

namespace switchml::udp {

struct Session {
    wire::Endpoint data_plane;       // where the switch takes packets
    std::uint32_t first_number = 0;  // of the session's packets, per thread
    std::uint64_t id = 0;
    std::chrono::milliseconds lease{0};  // how long it stands without a sign of life; 0: for good
    bool answers_probes = false;         // the switch does; see udp/probe.hpp
    std::shared_ptr<ControllerClient> controller;

    // Whether the switch tells packets of different rounds apart by their numbers, as every switch with leases does.
    bool numbered() const { return lease.count() > 0; }

    // How often the lease is renewed: two renewals may be lost, and a restarted switch is noticed within two seconds.
    std::chrono::milliseconds renewal_period() const { return std::min(lease / 3, std::chrono::milliseconds(2000)); }
};

// Brings all workers into one session. Blocks until every worker is in, at most
// connect_timeout_ms + job_timeout_ms. `first`: where thread 0 sends from. A session that does not come about is given
// back to the switch. Error: EUNREACHABLE, EREFUSED (also where another job has
// the switch), ETIMEDOUT (a worker is missing), ECONFIG (this worker's parameters
// differ from rank 0's), EABORTED (cancelled).
Session open_session(const Settings &settings, const wire::Endpoint &first);

// Tells the switch that this worker will not use it, so that the others need not wait for a lease.
void give_back(const Session &session);

}  // namespace switchml::udp
