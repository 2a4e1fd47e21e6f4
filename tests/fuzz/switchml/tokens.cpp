// SPDX-License-Identifier: BSD-3-Clause
//
// Files of tokens, as the switch and a worker read them, and what others send.
// Input: a file's content, a zero, the metadata entry of a stranger.
#include "tokens.hpp"

#include <optional>
#include <stdexcept>

#include "authorization.hpp"
#include "error.hpp"
#include "input.hpp"

using namespace switchml;
using softswitch::Tokens;

namespace {

template <class Parsed, class Failure, class Parse>
std::optional<Parsed> parse(const std::string &content, const Parse &parser) {
    try {
        return parser(content, "FILE");
    } catch (const Failure &failure) {
        REQUIRE(std::string(failure.what()).find("FILE") != std::string::npos);
        REQUIRE(fuzz::is_printable(failure.what()));
        return std::nullopt;
    }
}

bool holds_line(const std::string &content, const std::string &line) {
    return ("\n" + content + "\n").find("\n" + line + "\n") != std::string::npos ||
           ("\n" + content + "\n").find("\n" + line + "\r\n") != std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    fuzz::Input input(data, bytes);
    const std::string content = input.until('\0');
    const std::string stranger = input.text(input.left());
    const auto worker = parse<std::string, Error>(content, parse_authorization);
    const auto tokens = parse<Tokens, std::runtime_error>(content, Tokens::parse);
    REQUIRE(!worker || (worker->rfind("Bearer ", 0) == 0 && fuzz::is_printable(*worker)));
    const auto session = parse<std::string, Error>(content, parse_session_token);
    if (session) {
        REQUIRE(*worker == "Bearer " + *session && softswitch::fault_of_session_token(*session).empty());
        REQUIRE(softswitch::same_token(*session, stranger) == (*session == stranger));
    } else if (worker) {
        REQUIRE(!softswitch::fault_of_session_token(worker->substr(7)).empty());  // both sides take the same ones
    }
    if (!tokens) return 0;
    REQUIRE(!tokens->refusal(std::nullopt).empty());
    if (worker) REQUIRE(tokens->refusal(worker).empty());
    // Let in: who names a line of the file, and nobody else.
    const bool known = stranger.rfind("Bearer ", 0) == 0 && stranger.size() > 7 &&
                       stranger.find_first_of("\r\n") == std::string::npos && holds_line(content, stranger.substr(7));
    REQUIRE(tokens->refusal(stranger).empty() == known);
    return 0;
}
