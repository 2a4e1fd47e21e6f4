// SPDX-License-Identifier: BSD-3-Clause
#include <rte_ethdev.h>

#include <cstdint>
#include <string_view>

extern "C" int has_port(const char* name) {
  std::uint16_t port = 0;
  const std::string_view wanted{name};
  return !wanted.empty() && rte_eth_dev_get_port_by_name(name, &port) == 0 ? RTE_MAX_LCORE : 0;
}
