// SPDX-License-Identifier: BSD-3-Clause
//
// Why packets (UDP) do not pass between a worker and the switch, in the same
// words whatever sends them: sockets, or DPDK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "error.hpp"
#include "wire/address.hpp"

namespace switchml {

struct UnansweredProbes {
    wire::Endpoint from;
    wire::Endpoint data_plane;  // where the switch takes packets
    int sent = 0;
    std::uint32_t limit_ms = 0;
    std::size_t packet_bytes = 0;  // of payload
    std::string network_says;      // the last error that the system reported, if any
};

// EUNREACHABLE, for a switch that answers probes and sent none back within the limit.
Error no_path(const UnansweredProbes &probes);

// Why packets with so many bytes of payload do not pass to the switch, where the kernel answers EMSGSIZE.
Error too_large(const wire::Endpoint &data_plane, std::size_t packet_bytes);

}  // namespace switchml
