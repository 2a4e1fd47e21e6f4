// SPDX-License-Identifier: BSD-3-Clause
//
// Who may call the controller: those that send a token, those that have a
// certificate, or, by default, everybody.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "tokens.hpp"

namespace switchml::softswitch {

// Paths; empty: not asked for.
struct AccessOptions {
    std::string token_file;
    std::string tls_cert;
    std::string tls_key;
    std::string tls_client_ca;
};

// OK, or UNAUTHENTICATED with what the client has to do.
grpc::Status check_token(const Tokens &tokens, const grpc::ServerContext &context);

// Plaintext without a certificate. std::runtime_error when a file cannot be read.
std::shared_ptr<grpc::ServerCredentials> make_credentials(const AccessOptions &options);

}  // namespace switchml::softswitch
