// SPDX-License-Identifier: BSD-3-Clause
//
// What a worker asks the controller for: checked here, before anything else
// looks at it. Pure: messages in, values out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "leases.hpp"
#include "switchml.pb.h"

namespace switchml::softswitch {

constexpr std::size_t kMaxNameBytes = 1024;  // of a job's name and of its owner's

// "rank 3"
std::string who(std::uint32_t rank);

// Why a name (a job's, or its owner's) of a request is too long, "" when it is not.
std::string excess(const char *name, const std::string &value);

// Why the request makes no sense, "" when it does.
std::string check_request(const switchml_proto::UdpSessionRequest &request, std::uint32_t max_workers);

// Of a request that passed the check.
SessionRequest to_session_request(const switchml_proto::UdpSessionRequest &request);

}  // namespace switchml::softswitch
