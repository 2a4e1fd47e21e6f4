// SPDX-License-Identifier: BSD-3-Clause
#include "access.hpp"

#include <optional>

namespace switchml::softswitch {

grpc::Status check_token(const Tokens &tokens, const grpc::ServerContext &context) {
    const auto found = context.client_metadata().find("authorization");
    std::optional<std::string> given;
    if (found != context.client_metadata().end()) given.emplace(found->second.data(), found->second.size());
    const std::string refusal = tokens.refusal(given);
    if (refusal.empty()) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, refusal};
}

std::shared_ptr<grpc::ServerCredentials> make_credentials(const AccessOptions &options) {
    if (options.tls_cert.empty()) return grpc::InsecureServerCredentials();
    grpc::SslServerCredentialsOptions tls(options.tls_client_ca.empty()
                                              ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                              : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    tls.pem_key_cert_pairs.push_back(
        {read_file("--tls-key", options.tls_key), read_file("--tls-cert", options.tls_cert)});
    if (!options.tls_client_ca.empty()) tls.pem_root_certs = read_file("--tls-client-ca", options.tls_client_ca);
    return grpc::SslServerCredentials(tls);
}

}  // namespace switchml::softswitch
