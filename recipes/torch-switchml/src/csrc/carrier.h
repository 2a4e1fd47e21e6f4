// SPDX-License-Identifier: BSD-3-Clause
//
// What carries a session's jobs: the wire itself, or the ranks of a host
// together with one of them on the wire.
#pragma once

#include <cstdint>
#include <string>

#include <switchml.h>

#include "counters.h"

namespace torch_switchml {

class Carrier {
  public:
    virtual ~Carrier() = default;

    // As switchml_allreduce_submit, in place: SWITCHML_OK, and `callback` is
    // called once; or another status with its reason, and it never is.
    virtual switchml_status submit(void *data, uint64_t numel, Dtype dtype, switchml_callback callback, void *user,
                                   std::string &reason) = 0;

    // Fails what is pending with SWITCHML_EABORTED. From any thread. `reason` is for other ranks that share it.
    virtual void abort(const std::string &reason) = 0;

    // Reads the library's counters and returns true; false where another process
    // has the session with the switch.
    virtual bool read_stats(switchml_stats &stats) const = 0;

    // Ends the carrier and its threads, and what is pending with
    // SWITCHML_EABORTED. Idempotent; not from a callback.
    virtual void close() = 0;
};

inline switchml_dtype library_dtype(Dtype dtype) {
    return dtype == Dtype::kFloat32 ? SWITCHML_FLOAT32 : SWITCHML_INT32;
}

}  // namespace torch_switchml
