// SPDX-License-Identifier: BSD-3-Clause
//
// Lists of processors as SWITCHML_DPDK_CORES takes them: "2", "0,2", "4-7".
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace switchml {

// The processors that this process may run on, by number; empty where the system does not tell.
std::set<std::uint32_t> allowed_processors();

// The list written out in ascending order, "4,5,6,7", for DPDK, which ends the process or prints all of its usage where
// a list displeases it. Error ECONFIG, with `name` for the setting, where it is no list, does not have a processor for
// each thread, or has one that is not among `allowed`.
std::string check_processors(const std::string &name, const std::string &list, std::uint32_t num_threads,
                             const std::set<std::uint32_t> &allowed);

}  // namespace switchml
