// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include "dpdk_failures.hpp"
#include "error.hpp"
#include "local_address.hpp"
#include "processors.hpp"
#include "published/backend.hpp"
#include "transport.hpp"
#include "wire/udp_socket.hpp"

namespace switchml {

bool transport_has_controller() noexcept { return true; }

namespace published {
namespace {

constexpr std::uint32_t kLeastPool = 8191;  // DPDK likes powers of two less one
constexpr std::uint32_t kMostPool = (1U << 24) - 1;

// The first processors that this process may run on, one for each thread.
std::string default_cores(std::uint32_t num_threads) {
    std::string cores;
    std::uint32_t chosen = 0;
    for (const std::uint32_t processor : allowed_processors()) {
        if (chosen == num_threads) break;
        cores += (chosen == 0 ? "" : ",") + std::to_string(processor);
        ++chosen;
    }
    if (chosen == num_threads) return cores;
    throw Error(SWITCHML_ECONFIG, "SWITCHML_NUM_THREADS is " + std::to_string(num_threads) +
                                      ", but this process may run on " + std::to_string(chosen) +
                                      " processors only, and each thread of DPDK takes one");
}

// Unless told otherwise, leave nothing behind in the system (several processes can then share a host as well),
// and keep to warnings.
std::string eal_options(const std::string &given) {
    std::string options = given;
    const auto has = [&](const char *option) { return given.find(option) != std::string::npos; };
    if (!has("--in-memory") && !has("--file-prefix") && !has("--no-shconf"))
        options += has("--no-huge") ? " --no-shconf" : " --in-memory";  // which does not go with --no-huge
    if (!has("--log-level")) options += " --log-level=5";
    return options;
}

// Enough for both rings of the port, the window, and what the caches may hold back.
std::uint32_t default_pool(const Settings &settings) {
    std::uint32_t size = kLeastPool;
    while (size < 4 * settings.max_outstanding_packets + kLeastPool / 2) size = 2 * size + 1;
    return size;
}

}  // namespace

const char *backend_name() noexcept { return "dpdk"; }

void configure_backend(const Settings &settings, const ConfigurationFile &file, const Environment &environment,
                       Config &config) {
    DpdkBackendConfig &dpdk = config.backend_.dpdk;
    dpdk.worker_port = settings.worker_port;
    const wire::IpAddress local = choose_local_address(settings);
    if (!local.is_ipv4())
        throw Error(SWITCHML_ECONFIG, "the " + std::string(backend_name()) + " transport speaks IPv4 only, not from " +
                                          wire::to_text(local));
    dpdk.worker_ip_str = wire::to_text(local);
    dpdk.cores_str = file.text(environment, "backend.dpdk.cores", "");
    if (dpdk.cores_str.empty()) {
        dpdk.cores_str = default_cores(settings.num_threads);
    } else {
        dpdk.cores_str = check_processors("SWITCHML_DPDK_CORES (backend.dpdk.cores)", dpdk.cores_str,
                                          settings.num_threads, allowed_processors());
    }
    dpdk.extra_eal_options = eal_options(file.text(environment, "backend.dpdk.extra_eal_options", ""));
    dpdk.port_id = static_cast<std::uint16_t>(file.number(environment, "backend.dpdk.port_id", 0, 65535));
    dpdk.pool_size = file.number(environment, "backend.dpdk.pool_size", default_pool(settings), kMostPool);
    dpdk.pool_cache_size = file.number(environment, "backend.dpdk.pool_cache_size", 256, 512);
    dpdk.burst_rx = file.number(environment, "backend.dpdk.burst_rx", 64, 1024);
    dpdk.burst_tx = file.number(environment, "backend.dpdk.burst_tx", 64, 1024);
    dpdk.bulk_drain_tx_us = file.number(environment, "backend.dpdk.bulk_drain_tx_us", 10, 1000000);
    if (dpdk.burst_rx == 0 || dpdk.burst_tx == 0)
        throw Error(SWITCHML_ECONFIG, "backend.dpdk.burst_rx and backend.dpdk.burst_tx must be at least 1");
}

void check_host() {}

std::optional<Error> explain_start(const std::string &message, const Config &config) {
    return explain_dpdk_failure(message, {static_cast<std::uint32_t>(config.general_.num_worker_threads),
                                          config.backend_.dpdk.extra_eal_options, has_free_huge_pages()});
}

}  // namespace published
}  // namespace switchml
