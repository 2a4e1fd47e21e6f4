// SPDX-License-Identifier: BSD-3-Clause
#include "authorization.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "error.hpp"

namespace switchml {

std::string read_file(const std::string &variable, const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) throw Error(SWITCHML_ECONFIG, variable + "='" + path + "' cannot be read");
    return text;
}

std::string read_authorization(const Settings &settings) {
    if (settings.token_file.empty()) return {};
    return parse_authorization(read_file("SWITCHML_TOKEN_FILE", settings.token_file), settings.token_file);
}

std::string parse_authorization(const std::string &text, const std::string &path) {
    const std::string token = text.substr(0, text.find_first_of("\r\n"));
    const bool printable = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
    if (token.empty() || !printable) {
        throw Error(SWITCHML_ECONFIG, "SWITCHML_TOKEN_FILE='" + path +
                                          "' must begin with a line of printable ASCII characters without spaces");
    }
    return "Bearer " + token;
}

}  // namespace switchml
