// SPDX-License-Identifier: BSD-3-Clause
#include "controller_access.hpp"

#include "authorization.hpp"

namespace switchml {

std::shared_ptr<grpc::ChannelCredentials> make_credentials(const Settings &settings) {
    if (settings.tls_ca.empty()) return grpc::InsecureChannelCredentials();
    grpc::SslCredentialsOptions tls;
    tls.pem_root_certs = read_file("SWITCHML_TLS_CA", settings.tls_ca);
    if (!settings.tls_cert.empty()) {
        tls.pem_cert_chain = read_file("SWITCHML_TLS_CERT", settings.tls_cert);
        tls.pem_private_key = read_file("SWITCHML_TLS_KEY", settings.tls_key);
    }
    return grpc::SslCredentials(tls);
}

}  // namespace switchml
