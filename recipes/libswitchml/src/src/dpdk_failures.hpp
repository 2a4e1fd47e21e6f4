// SPDX-License-Identifier: BSD-3-Clause
//
// Why DPDK did not start, and what to do about it: the published library hands
// on DPDK's own words, which name neither our settings nor the cause.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "error.hpp"

namespace switchml {

struct DpdkStart {
    std::uint32_t num_threads = 1;
    std::string eal_options;
    bool has_huge_pages = true;
};

// The error for the published library's message; nothing where it says enough.
std::optional<Error> explain_dpdk_failure(const std::string &message, const DpdkStart &start);

// Whether the system has free huge pages of any size. `folder`: the kernel's, with a folder for each size.
bool has_free_huge_pages(const std::string &folder = "/sys/kernel/mm/hugepages");

}  // namespace switchml
