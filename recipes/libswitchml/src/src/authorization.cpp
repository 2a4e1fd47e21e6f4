// SPDX-License-Identifier: BSD-3-Clause
#include "authorization.hpp"

#include <algorithm>
#include <cstddef>
#include <fstream>

#include "error.hpp"

namespace switchml {
namespace {

constexpr const char *kSessionVariable = "SWITCHML_SESSION_TOKEN_FILE";
// As switchml-switch takes them.
constexpr std::size_t kLeastSessionBytes = 16;
constexpr std::size_t kMostSessionBytes = 1024;

std::string first_line(const std::string &text) { return text.substr(0, text.find_first_of("\r\n")); }

bool is_printable(const std::string &token) {
    return std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

std::string read_file(const std::string &variable, const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::string text;
    for (char c = 0; file.get(c);) text += c;
    if (!file.is_open() || file.bad())  // the latter of a folder
        throw Error(SWITCHML_ECONFIG, variable + "='" + path + "' cannot be read");
    return text;
}

std::string read_authorization(const Settings &settings) {
    if (settings.token_file.empty()) return {};
    return parse_authorization(read_file("SWITCHML_TOKEN_FILE", settings.token_file), settings.token_file);
}

std::string read_session_token(const Settings &settings) {
    if (settings.session_token_file.empty()) return {};
    return parse_session_token(read_file(kSessionVariable, settings.session_token_file), settings.session_token_file);
}

std::string parse_authorization(const std::string &text, const std::string &path) {
    const std::string token = first_line(text);
    if (!token.empty() && is_printable(token)) return "Bearer " + token;
    throw Error(SWITCHML_ECONFIG, "SWITCHML_TOKEN_FILE='" + path +
                                      "' must begin with a line of printable ASCII characters without spaces");
}

std::string parse_session_token(const std::string &text, const std::string &path) {
    const std::string token = first_line(text);
    if (token.size() >= kLeastSessionBytes && token.size() <= kMostSessionBytes && is_printable(token)) return token;
    throw Error(SWITCHML_ECONFIG, std::string(kSessionVariable) + "='" + path + "' must begin with a line of " +
                                      std::to_string(kLeastSessionBytes) + " to " + std::to_string(kMostSessionBytes) +
                                      " printable ASCII characters without spaces");
}

}  // namespace switchml
