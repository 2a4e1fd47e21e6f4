// SPDX-License-Identifier: BSD-3-Clause
#include "controller_access.hpp"

#include <string>

#include "authorization.hpp"
#include "error.hpp"

namespace switchml {
namespace {

// Of nothing gRPC makes the system's authorities, or a worker without a certificate.
std::string read_pem(const std::string &variable, const std::string &path) {
    std::string text = read_file(variable, path);
    if (text.find("-----BEGIN ") == std::string::npos)
        throw Error(SWITCHML_ECONFIG, variable + "='" + path + "' holds nothing in the PEM format");
    return text;
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> make_credentials(const Settings &settings) {
    if (settings.tls_ca.empty()) return grpc::InsecureChannelCredentials();
    grpc::SslCredentialsOptions tls;
    tls.pem_root_certs = read_pem("SWITCHML_TLS_CA", settings.tls_ca);
    if (!settings.tls_cert.empty()) {
        tls.pem_cert_chain = read_pem("SWITCHML_TLS_CERT", settings.tls_cert);
        tls.pem_private_key = read_pem("SWITCHML_TLS_KEY", settings.tls_key);
    }
    return grpc::SslCredentials(tls);
}

}  // namespace switchml
