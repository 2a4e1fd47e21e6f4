// SPDX-License-Identifier: BSD-3-Clause
//
// switchml-bench's command line: words that end with line breaks.
#include <cstdint>
#include <string>
#include <vector>

#include "bench_options.hpp"
#include "input.hpp"

using namespace switchml;

namespace {

// Whether a word is this number, with zeros before it or without.
bool says(const std::vector<std::string> &words, std::uint64_t number) {
    for (const std::string &word : words) {
        const std::size_t start = std::min(word.find_first_not_of('0'), word.empty() ? 0 : word.size() - 1);
        if (word.substr(start) == std::to_string(number)) return true;
    }
    return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    fuzz::Input input(data, bytes);
    std::vector<std::string> words{"switchml-bench"};
    while (input.left() > 0) words.push_back(input.until('\n').c_str());
    std::vector<const char *> arguments;
    for (const std::string &word : words) arguments.push_back(word.c_str());
    try {
        const bench::Options options = bench::parse_options(static_cast<int>(arguments.size()), arguments.data());
        REQUIRE(options.workers > 0 && says(words, options.workers) && says(words, options.rank));
        const bench::Options usual;
        REQUIRE(options.numel == usual.numel || says(words, options.numel));
        REQUIRE(options.iterations == usual.iterations || says(words, options.iterations));
    } catch (const bench::UsageError &error) {
        REQUIRE(*error.what() != '\0');
    }
    return 0;
}
