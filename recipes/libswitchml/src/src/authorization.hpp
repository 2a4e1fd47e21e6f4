// SPDX-License-Identifier: BSD-3-Clause
//
// The tokens that a worker shows the controller, from the files that the settings
// name. What is wrong with a file is an Error ECONFIG that names its variable.
#pragma once

#include <string>

#include "settings.hpp"

namespace switchml {

std::string read_file(const std::string &variable, const std::string &path);

// "Bearer TOKEN" for the metadata entry "authorization", empty without a token.
std::string read_authorization(const Settings &settings);

// The session's token, for the metadata entry "switchml-session-token", empty without one.
std::string read_session_token(const Settings &settings);

// The same from the content of the file `path`: the token is its first line.
std::string parse_authorization(const std::string &text, const std::string &path);
std::string parse_session_token(const std::string &text, const std::string &path);

}  // namespace switchml
