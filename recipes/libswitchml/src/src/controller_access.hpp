// SPDX-License-Identifier: BSD-3-Clause
//
// What a worker shows the controller, and how it knows the controller: token and
// certificates, from the files that the settings name. A file that cannot be read
// is an Error ECONFIG that names its variable.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "settings.hpp"

namespace switchml {

// "Bearer TOKEN" for the metadata entry "authorization", empty without a token.
std::string read_authorization(const Settings &settings);

// TLS where the settings name an authority, else plaintext.
std::shared_ptr<grpc::ChannelCredentials> make_credentials(const Settings &settings);

}  // namespace switchml
