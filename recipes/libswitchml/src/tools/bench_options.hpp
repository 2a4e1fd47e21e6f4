// SPDX-License-Identifier: BSD-3-Clause
//
// switchml-bench's command line.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "switchml.h"

namespace switchml::bench {

struct Options {
    std::uint32_t rank = 0;
    std::uint32_t workers = 0;
    std::uint64_t numel = 16 * 1024 * 1024;
    switchml_dtype dtype = SWITCHML_FLOAT32;
    std::uint32_t iterations = 5;
    bool in_place = false;
};

class UsageError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// UsageError for what is no option or has no such value. What the library judges (ranks, workers) is left to it.
Options parse_options(int argc, const char *const *argv);

}  // namespace switchml::bench
