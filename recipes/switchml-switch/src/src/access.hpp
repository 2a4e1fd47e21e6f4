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

// OK; UNAUTHENTICATED, with what the client has to do, without one of the switch's tokens; INVALID_ARGUMENT with a
// session's token that is none.
grpc::Status check_tokens(const Tokens &tokens, const grpc::ServerContext &context);

// The session's token that came with a call, "" where none did.
std::string session_token(const grpc::ServerContext &context);

// Plaintext without a certificate. std::runtime_error when a file cannot be read.
std::shared_ptr<grpc::ServerCredentials> make_credentials(const AccessOptions &options);

}  // namespace switchml::softswitch
