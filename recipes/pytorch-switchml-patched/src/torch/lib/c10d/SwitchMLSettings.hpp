// SPDX-License-Identifier: BSD-3-Clause
//
// What the environment asks of PyTorch itself. What it asks of libswitchml, that
// reads (switchml_resolve); here is what must be known before it is loaded, and
// what it does not know.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace c10d {
namespace switchml_detail {

bool isRequested();

struct Settings {
    std::string library = "libswitchml.so.1";
    std::string statsFile;
    std::string jobName;  // empty: none
    bool jobTimeoutSet = false;

    static Settings read();

    // Throws std::runtime_error that names a variable with an unusable value.
    void check() const;

    // What switchml_config is to have: 0, for the environment's, else the group's own.
    uint32_t jobTimeoutMs(std::chrono::milliseconds groupTimeout) const;

    // Where this rank reports to, "{rank}" filled in; empty for nowhere.
    std::string statsPath(int rank) const;
};

}  // namespace switchml_detail
}  // namespace c10d
