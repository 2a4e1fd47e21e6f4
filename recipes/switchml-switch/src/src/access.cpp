// SPDX-License-Identifier: BSD-3-Clause
#include "access.hpp"

#include <optional>
#include <stdexcept>

namespace switchml::softswitch {
namespace {

std::optional<std::string> entry(const grpc::ServerContext &context, const char *key) {
    const auto found = context.client_metadata().find(key);
    if (found == context.client_metadata().end()) return std::nullopt;
    return std::string(found->second.data(), found->second.size());
}

// Without an authority no worker's certificate would do.
std::string read_authorities(const std::string &path) {
    std::string text = read_file("--tls-client-ca", path);
    if (text.find("-----BEGIN ") == std::string::npos)
        throw std::runtime_error(path + " (--tls-client-ca) holds no certificate in the PEM format");
    return text;
}

}  // namespace

grpc::Status check_tokens(const Tokens &tokens, const grpc::ServerContext &context) {
    const std::string refusal = tokens.refusal(entry(context, "authorization"));
    if (!refusal.empty()) return {grpc::StatusCode::UNAUTHENTICATED, refusal};
    const std::string fault = fault_of_session_token(session_token(context));
    if (!fault.empty()) return {grpc::StatusCode::INVALID_ARGUMENT, fault};
    return grpc::Status::OK;
}

std::string session_token(const grpc::ServerContext &context) {
    return entry(context, "switchml-session-token").value_or("");
}

std::shared_ptr<grpc::ServerCredentials> make_credentials(const AccessOptions &options) {
    if (options.tls_cert.empty()) return grpc::InsecureServerCredentials();
    grpc::SslServerCredentialsOptions tls(options.tls_client_ca.empty()
                                              ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                              : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    tls.pem_key_cert_pairs.push_back(
        {read_file("--tls-key", options.tls_key), read_file("--tls-cert", options.tls_cert)});
    if (!options.tls_client_ca.empty()) tls.pem_root_certs = read_authorities(options.tls_client_ca);
    return grpc::SslServerCredentials(tls);
}

}  // namespace switchml::softswitch
