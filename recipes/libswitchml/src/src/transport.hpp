// SPDX-License-Identifier: BSD-3-Clause
//
// What a transport implements. Exactly one is compiled into a library, chosen
// with the CMake variable SWITCHML_TRANSPORT, so there is no registry: the
// chosen one defines the functions at the end of this file.
#pragma once

#include <cstdint>
#include <memory>

#include "settings.hpp"
#include "switchml.h"

namespace switchml {

struct JobRequest {
    const void *in = nullptr;
    void *out = nullptr;
    std::uint64_t numel = 0;
    switchml_dtype dtype = SWITCHML_FLOAT32;
    switchml_callback callback = nullptr;
    void *user = nullptr;
};

class Transport {
  public:
    Transport() = default;
    Transport(const Transport &) = delete;
    Transport &operator=(const Transport &) = delete;

    // Ends every pending job with EABORTED, their callbacks included, and joins all threads.
    virtual ~Transport() = default;

    // Takes a job whose arguments are valid, or throws Error and leaves its buffers alone.
    virtual void submit(const JobRequest &request) = 0;

    virtual void abort() = 0;

    // Fills every field but struct_size.
    virtual void read_stats(switchml_stats &stats) const noexcept = 0;
};

// Opens the session of all workers; Error when that fails.
std::unique_ptr<Transport> open_transport(const Settings &settings);

const char *transport_name() noexcept;

// Whether a switch controller sets sessions up; if not, SWITCHML_CONTROLLER is not needed.
bool transport_has_controller() noexcept;

// The default of max_outstanding_packets, where the threads divide it; else it is the next multiple of theirs.
std::uint32_t transport_window() noexcept;

// Where the settings come from that the caller leaves open: the environment, and for
// some transports a configuration file beneath it. Error ECONFIG when that is damaged.
Environment transport_environment();

}  // namespace switchml
