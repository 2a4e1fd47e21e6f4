// SPDX-License-Identifier: BSD-3-Clause
//
// The connection to the controller: its certificates and ours, from the files
// that the settings name. A file that cannot be read is an Error ECONFIG that
// names its variable.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "settings.hpp"

namespace switchml {

// TLS where the settings name an authority, else plaintext.
std::shared_ptr<grpc::ChannelCredentials> make_credentials(const Settings &settings);

}  // namespace switchml
