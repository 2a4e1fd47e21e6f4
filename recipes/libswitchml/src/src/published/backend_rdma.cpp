// SPDX-License-Identifier: BSD-3-Clause
#include <infiniband/verbs.h>

#include "error.hpp"
#include "published/backend.hpp"
#include "transport.hpp"

namespace switchml {

bool transport_has_controller() noexcept { return true; }

namespace published {

const char *backend_name() noexcept { return "rdma"; }

void configure_backend(const Settings &settings, const ConfigurationFile &file, const Environment &environment,
                       Config &config) {
    RdmaBackendConfig &rdma = config.backend_.rdma;
    rdma.msg_numel = file.number(environment, "backend.rdma.msg_numel", 1024, 1U << 20);
    rdma.device_name = file.text(environment, "backend.rdma.device_name", "mlx5_0");
    rdma.device_port_id = static_cast<std::uint16_t>(file.number(environment, "backend.rdma.device_port_id", 1, 255));
    rdma.gid_index = static_cast<std::uint16_t>(file.number(environment, "backend.rdma.gid_index", 3, 255));
    const std::uint32_t step = settings.packet_numel * settings.num_threads;
    const bool whole = rdma.msg_numel >= settings.packet_numel && rdma.msg_numel % settings.packet_numel == 0;
    if (whole && settings.max_outstanding_packets % (rdma.msg_numel / settings.packet_numel * settings.num_threads) == 0)
        return;
    throw Error(SWITCHML_ECONFIG,
                "SWITCHML_RDMA_MESSAGE_NUMEL (backend.rdma.msg_numel) is " + std::to_string(rdma.msg_numel) +
                    ": it must be a multiple of SWITCHML_PACKET_NUMEL, and SWITCHML_MAX_OUTSTANDING_PACKETS one of "
                    "the packets in a message times SWITCHML_NUM_THREADS (" +
                    std::to_string(step / settings.packet_numel) + ")");
}

void check_host() {
    int count = 0;
    ibv_device **devices = ibv_get_device_list(&count);
    if (devices != nullptr) ibv_free_device_list(devices);
    if (devices != nullptr && count > 0) return;
    throw Error(SWITCHML_ECONFIG,
                "this host has no RDMA device (ibv_devices lists none); the rdma transport needs a RoCEv2 adapter and "
                "its kernel driver. libswitchml=*=udp* works on any network interface");
}

std::optional<Error> explain_start(const std::string &, const Config &) { return std::nullopt; }

}  // namespace published
}  // namespace switchml
