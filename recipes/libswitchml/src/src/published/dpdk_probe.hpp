// SPDX-License-Identifier: BSD-3-Clause
//
// Whether packets pass between the worker's DPDK port and the switch, before
// the first job: what udp/probe.hpp does with sockets.
#pragma once

#include "config.h"
#include "dpdk_backend.h"

namespace switchml {

// Returns once the switch has sent back a packet of each queue. The port has been started, the session is open, and no
// other thread uses the queues. Addresses are in network order, `worker` with the port of queue 0; the switch answers
// probes. Error: EUNREACHABLE where none came back within connect_timeout_ms, ENOMEM.
void probe_path(const Config &config, const DpdkBackend::E2eAddress &worker, const DpdkBackend::E2eAddress &data_plane);

}  // namespace switchml
