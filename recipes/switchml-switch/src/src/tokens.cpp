// SPDX-License-Identifier: BSD-3-Clause
#include "tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <stdexcept>

namespace switchml::softswitch {
namespace {

constexpr std::size_t kLeastTokenBytes = 16;
constexpr std::size_t kMostTokenBytes = 1024;
constexpr const char *kScheme = "Bearer ";

bool is_token(const std::string &text) {
    return text.size() >= kLeastTokenBytes && text.size() <= kMostTokenBytes &&
           std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string expected() {
    return std::to_string(kLeastTokenBytes) + " to " + std::to_string(kMostTokenBytes) +
           " printable ASCII characters without spaces";
}

}  // namespace

bool same_token(const std::string &one, const std::string &other) {
    volatile unsigned char difference = one.size() == other.size() ? 0 : 1;
    for (std::size_t i = 0; i < other.size() && !one.empty(); ++i) {
        const auto bits = static_cast<unsigned char>(one[i % one.size()] ^ other[i]);
        difference = static_cast<unsigned char>(difference | bits);
    }
    return difference == 0;
}

std::string fault_of_session_token(const std::string &token) {
    if (token.empty() || is_token(token)) return {};
    return "the session's token (SWITCHML_SESSION_TOKEN_FILE) must be " + expected();
}

std::string read_file(const std::string &option, const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::string text;
    for (char c = 0; file.get(c);) text += c;
    if (!file.is_open() || file.bad())  // the latter of a folder
        throw std::runtime_error("cannot read " + path + " (" + option + ")");
    return text;
}

Tokens Tokens::parse(const std::string &text, const std::string &path) {
    Tokens tokens;
    for (std::size_t start = 0; start < text.size();) {
        const std::size_t end = std::min(text.find('\n', start), text.size());
        std::string line = text.substr(start, end - start);
        start = end + 1;
        if (!line.empty() && line.back() == '\r') line.pop_back();
        if (line.empty()) continue;
        if (!is_token(line)) {
            throw std::runtime_error(path + " (--token-file): token " + std::to_string(tokens.tokens_.size() + 1) +
                                     " must be " + expected());
        }
        tokens.tokens_.push_back(line);
    }
    if (tokens.tokens_.empty()) throw std::runtime_error(path + " (--token-file) holds no token");
    return tokens;
}

std::string Tokens::refusal(const std::optional<std::string> &authorization) const {
    if (tokens_.empty()) return {};
    if (!authorization) return "this switch wants a token: set SWITCHML_TOKEN_FILE to a file that holds it";
    bool right = false;
    for (const std::string &token : tokens_) right = same_token(kScheme + token, *authorization) || right;
    if (right) return {};
    return "the token in the file that SWITCHML_TOKEN_FILE names is not this switch's";
}

}  // namespace switchml::softswitch
