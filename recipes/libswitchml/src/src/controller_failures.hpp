// SPDX-License-Identifier: BSD-3-Clause
//
// What went wrong between a worker and its controller, in words: every status of
// gRPC has its own, and a time limit is named only where it has passed.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "error.hpp"
#include "settings.hpp"

namespace switchml {

// A call of the controller that failed.
struct FailedCall {
    std::string method;                  // "Sync.Barrier"
    std::string target;                  // "host:port"
    std::uint32_t num_workers = 1;       // of the session
    bool awaits_workers = false;         // whether the controller answers once all workers have called
    std::chrono::milliseconds limit{0};  // connect_timeout_ms + job_timeout_ms
    bool is_over_limit = false;          // whether that has passed
};

// The error that a status which is not OK stands for: EUNREACHABLE, EREFUSED, or ETIMEDOUT where workers are missing.
Error call_failure(const grpc::Status &status, const FailedCall &call);

// Why there is no connection at all, as a clause ("connections are refused: ..."), of a status of UNAVAILABLE; gRPC's
// own words where there are none for them, "" where it has said nothing.
std::string connection_failure(const grpc::Status &status);

// The same of a connection that is tried here within the limit; "" where one can be made or nothing comes back. gRPC
// 1.30 does not hand on what the system said to it.
std::string probe_connection(const Settings &settings, std::chrono::milliseconds limit);

}  // namespace switchml
