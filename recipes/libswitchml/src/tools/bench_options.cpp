// SPDX-License-Identifier: BSD-3-Clause
#include "bench_options.hpp"

#include <charconv>
#include <string>

namespace switchml::bench {
namespace {

constexpr std::uint64_t kMostNumel = 1'000'000'000'000;  // beyond any memory, and far from overflow in bytes

std::uint64_t parse_number(const std::string &option, const std::string &text, std::uint64_t most) {
    std::uint64_t value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && stop == end && value <= most) return value;
    throw UsageError(option + " takes a whole number up to " + std::to_string(most) + ", not '" + text + "'");
}

std::uint32_t parse_small(const std::string &option, const std::string &text) {
    return static_cast<std::uint32_t>(parse_number(option, text, UINT32_MAX));
}

}  // namespace

Options parse_options(int argc, const char *const *argv) {
    Options options;
    bool has_rank = false;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--in-place") {
            options.in_place = true;
            continue;
        }
        if (i + 1 >= argc) throw UsageError("unknown option or missing value: " + name);
        const std::string value = argv[++i];
        if (name == "--rank") {
            options.rank = parse_small(name, value);
            has_rank = true;
        } else if (name == "--workers") {
            options.workers = parse_small(name, value);
        } else if (name == "--numel") {
            options.numel = parse_number(name, value, kMostNumel);
        } else if (name == "--iterations") {
            options.iterations = parse_small(name, value);
        } else if (name == "--dtype" && (value == "float32" || value == "int32")) {
            options.dtype = value == "int32" ? SWITCHML_INT32 : SWITCHML_FLOAT32;
        } else {
            throw UsageError("unknown option or value: " + name + " " + value);
        }
    }
    if (!has_rank || options.workers == 0) throw UsageError("--rank and --workers are needed");
    return options;
}

}  // namespace switchml::bench
