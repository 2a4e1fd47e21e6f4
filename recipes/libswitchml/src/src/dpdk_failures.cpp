// SPDX-License-Identifier: BSD-3-Clause
#include "dpdk_failures.hpp"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace switchml {
namespace {

constexpr const char *kNoPort =
    "; bind a network card to a driver of DPDK's and name it in SWITCHML_DPDK_EAL_OPTIONS (-w 0000:81:00.0), or use a "
    "network interface as it is (--no-pci --vdev=net_af_packet0,iface=eth0)";

}  // namespace

std::optional<Error> explain_dpdk_failure(const std::string &message, const DpdkStart &start) {
    const auto says = [&](const char *words) { return message.find(words) != std::string::npos; };
    const auto is_among_options = [&](const char *words) { return start.eal_options.find(words) != std::string::npos; };
    if (says("EAL init failed") && !start.has_huge_pages && !is_among_options("--no-huge")) {
        return Error(SWITCHML_ECONFIG,
                     "DPDK did not start: this host has no free huge pages; reserve some (as root: sysctl -w "
                     "vm.nr_hugepages=512), or add --no-huge -m 256 to SWITCHML_DPDK_EAL_OPTIONS, which af_packet and "
                     "the virtual drivers work with");
    }
    if (says("EAL init failed")) {
        // its number for an option that it does not know or take
        return Error(says("Invalid argument") ? SWITCHML_ECONFIG : SWITCHML_EIO,
                     "DPDK did not start (" + message + "), with SWITCHML_DPDK_EAL_OPTIONS '" + start.eal_options +
                         "'; check the options, and that this user may use what they name (root, or CAP_NET_RAW for "
                         "af_packet); DPDK's own lines above say more");
    }
    if (says("No Ethernet ports") && (is_among_options("--vdev") || is_among_options("-w "))) {
        return Error(SWITCHML_ECONFIG, "DPDK could open none of the devices in SWITCHML_DPDK_EAL_OPTIONS '" +
                                           start.eal_options +
                                           "'; check that the interface or card that they name exists and is written "
                                           "so; DPDK's own lines above say more");
    }
    if (says("No Ethernet ports")) return Error(SWITCHML_ECONFIG, std::string("DPDK found no port") + kNoPort);
    if (says("Cannot init mbuf pool")) {
        return Error(SWITCHML_ENOMEM,
                     "DPDK has too little memory for the packets of " + std::to_string(start.num_threads) +
                         " threads (" + message +
                         "): raise -m in SWITCHML_DPDK_EAL_OPTIONS (megabytes) or reserve more huge pages (as root: "
                         "sysctl -w vm.nr_hugepages=512)");
    }
    if (says("is not available. The number of enabled ports")) {
        return Error(SWITCHML_ECONFIG,
                     "DPDK has no such port (SWITCHML_DPDK_PORT, counted from 0): " + message + kNoPort);
    }
    if (start.num_threads > 1 && (says("Flow rule can't be added") || says("Cannot configure port"))) {
        return Error(SWITCHML_ECONFIG,
                     "the port's driver cannot give each of " + std::to_string(start.num_threads) +
                         " threads its packets (" + message +
                         "): set SWITCHML_NUM_THREADS to 1 on all workers, as af_packet and the virtual drivers need "
                         "it, or use a card whose driver has flow rules");
    }
    if (says("Link Down")) {
        return Error(SWITCHML_EIO,
                     "the DPDK port's link is down: check the cable and the other end, or bring the interface up "
                     "(ip link set INTERFACE up)");
    }
    return std::nullopt;
}

bool has_free_huge_pages(const std::string &folder) {
    std::error_code error;
    for (const auto &size : std::filesystem::directory_iterator(folder, error)) {
        std::uint64_t pages = 0;
        std::ifstream(size.path() / "free_hugepages") >> pages;
        if (pages > 0) return true;
    }
    return false;
}

}  // namespace switchml
