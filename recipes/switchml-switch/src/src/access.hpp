// SPDX-License-Identifier: BSD-3-Clause
//
// Who may call the controller: those that send a token, those that have a
// certificate, or, by default, everybody.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

namespace switchml::softswitch {

// Paths; empty: not asked for.
struct AccessOptions {
    std::string token_file;
    std::string tls_cert;
    std::string tls_key;
    std::string tls_client_ca;
};

class Tokens {
  public:
    Tokens() = default;  // everybody is let in

    // One token a line; std::runtime_error, which names the file and never a token, when there is none or one is
    // too short or has other characters than a header may carry.
    static Tokens read(const std::string &path);

    // OK, or UNAUTHENTICATED with what the client has to do. Takes the same time for every wrong token of a length.
    grpc::Status check(const grpc::ServerContext &context) const;

  private:
    std::vector<std::string> tokens_;
};

// Plaintext without a certificate. std::runtime_error when a file cannot be read.
std::shared_ptr<grpc::ServerCredentials> make_credentials(const AccessOptions &options);

}  // namespace switchml::softswitch
