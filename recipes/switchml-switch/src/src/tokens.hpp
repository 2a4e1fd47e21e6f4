// SPDX-License-Identifier: BSD-3-Clause
//
// The tokens that the controller lets in, and those that sessions have. Pure but for reading the file.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace switchml::softswitch {

// A file that an option names; std::runtime_error, which names both, when it cannot be read.
std::string read_file(const std::string &option, const std::string &path);

// Whether two tokens are the same; how long it takes tells nothing about where they differ.
bool same_token(const std::string &one, const std::string &other);

// Why this may not be the token of a session, which clients send; empty: it may, and so may none ("").
std::string fault_of_session_token(const std::string &token);

class Tokens {
  public:
    Tokens() = default;  // everybody is let in

    // One token a line; std::runtime_error, which names the file and never a token, when there is none or one is
    // too short or has other characters than a header may carry.
    static Tokens read(const std::string &path) { return parse(read_file("--token-file", path), path); }
    static Tokens parse(const std::string &text, const std::string &path);

    // Why a call with this `authorization` entry is refused, and what the client has to do; empty: it is let in.
    // Takes the same time for every wrong token of a length.
    std::string refusal(const std::optional<std::string> &authorization) const;

  private:
    std::vector<std::string> tokens_;
};

}  // namespace switchml::softswitch
