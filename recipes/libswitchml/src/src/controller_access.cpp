// SPDX-License-Identifier: BSD-3-Clause
#include "controller_access.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "error.hpp"

namespace switchml {
namespace {

std::string read_file(const std::string &variable, const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw Error(SWITCHML_ECONFIG, variable + "='" + path + "' cannot be read");
    return text;
}

}  // namespace

std::string read_authorization(const Settings &settings) {
    if (settings.token_file.empty()) return {};
    const std::string text = read_file("SWITCHML_TOKEN_FILE", settings.token_file);
    const std::string token = text.substr(0, text.find_first_of("\r\n"));
    const bool printable = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
    if (token.empty() || !printable) {
        throw Error(SWITCHML_ECONFIG, "SWITCHML_TOKEN_FILE='" + settings.token_file +
                                          "' must begin with a line of printable ASCII characters without spaces");
    }
    return "Bearer " + token;
}

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
