// SPDX-License-Identifier: BSD-3-Clause
#include "interfaces.hpp"

#include <ifaddrs.h>
#include <linux/if_packet.h>

#include <cstring>
#include <memory>

namespace switchml::wire {
namespace {

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

InterfaceList list_interfaces() {
    ifaddrs *first = nullptr;
    if (getifaddrs(&first) != 0) first = nullptr;
    return {first, freeifaddrs};
}

const char *interface_of(const ifaddrs *first, const IpAddress &local_address) {
    for (const ifaddrs *it = first; it != nullptr; it = it->ifa_next) {
        if (it->ifa_addr != nullptr && address_of(it->ifa_addr) == local_address) return it->ifa_name;
    }
    return nullptr;
}

}  // namespace

std::uint64_t hardware_address(const IpAddress &local_address) {
    const InterfaceList interfaces = list_interfaces();
    const char *name = interface_of(interfaces.get(), local_address);
    if (name == nullptr) return 0;
    for (const ifaddrs *it = interfaces.get(); it != nullptr; it = it->ifa_next) {
        if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != AF_PACKET || std::strcmp(it->ifa_name, name) != 0)
            continue;
        const auto *link = reinterpret_cast<const sockaddr_ll *>(it->ifa_addr);
        std::uint64_t mac = 0;
        for (int i = 0; i < 6; ++i) mac = mac << 8 | link->sll_addr[i];
        return mac;
    }
    return 0;
}

}  // namespace switchml::wire
