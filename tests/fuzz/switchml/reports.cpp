// SPDX-License-Identifier: BSD-3-Clause
//
// What the ranks of a job reported, as the library compares it for frameworks:
// texts that end with zeros, a byte before each, which is 0 for a rank that said
// nothing. The first byte is the room for the answer.
#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "input.hpp"
#include "switchml.h"

using namespace switchml;

const char *switchml_transport(void) { return "none"; }
const char *switchml_version(void) { return "0"; }
uint32_t switchml_abi_version(void) { return SWITCHML_ABI_VERSION; }

namespace {

constexpr std::uint32_t kMostRanks = 32;

std::string answer_to(const std::vector<const char *> &reports, std::size_t room) {
    std::vector<char> text(room, '?');
    const auto count = static_cast<std::uint32_t>(reports.size());
    const std::size_t bytes = switchml_compare_reports(reports.data(), count, 1500, text.data(), room);
    REQUIRE(bytes != SIZE_MAX);
    std::vector<char> whole(bytes + 1, '?');
    REQUIRE(switchml_compare_reports(reports.data(), count, 1500, whole.data(), whole.size()) == bytes);
    REQUIRE(std::strlen(whole.data()) == bytes);
    if (room > 0)
        REQUIRE(text[std::min(bytes, room - 1)] == '\0' &&
                std::memcmp(text.data(), whole.data(), std::min(bytes, room - 1)) == 0);
    return whole.data();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    fuzz::Input input(data, bytes);
    const std::size_t room = input.byte();
    std::vector<std::string> texts;
    std::vector<bool> silent;
    while (input.left() > 0 && texts.size() < kMostRanks) {
        silent.push_back(input.byte() == 0);
        texts.push_back(input.until('\0'));
    }
    std::vector<const char *> reports;
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
        reports.push_back(silent[rank] ? nullptr : texts[rank].c_str());
    const std::string answer = answer_to(reports, room);
    const bool all_spoke = std::none_of(silent.begin(), silent.end(), [](bool one) { return one; });
    REQUIRE(all_spoke || answer.find(" did not report within 1.5 s") != std::string::npos);
    const bool no_error = std::all_of(texts.begin(), texts.end(),
                                      [](const std::string &text) { return text.empty() || text.front() == '\n'; });
    // One that says two things of the same name contradicts itself.
    const bool plain = std::all_of(texts.begin(), texts.end(), [](const std::string &text) {
        return std::count(text.begin(), text.end(), '\t') <= 1;
    });
    if (all_spoke && no_error && plain && std::set<std::string>(texts.begin(), texts.end()).size() <= 1)
        REQUIRE(answer.empty());
    if (all_spoke && !no_error) REQUIRE(!answer.empty());
    return 0;
}
