// SPDX-License-Identifier: BSD-3-Clause
//
// The transports that need a device, on a host without one: an error that says
// so, and a process that lives on.
#include <cstdlib>
#include <string>

#include "completion.hpp"
#include "wire/check.hpp"

using namespace switchml::testing;

namespace {

switchml_config config_for(const char *controller) {
    switchml_config config{};
    config.struct_size = sizeof config;
    config.num_workers = 1;
    config.num_threads = 1;
    config.controller = controller;
    config.local_address = "127.0.0.1";
    return config;
}

}  // namespace

TEST(a_missing_controller_is_a_matter_of_configuration) {
    unsetenv("SWITCHML_CONTROLLER");
    const switchml_config config = config_for(nullptr);
    switchml_context *context = nullptr;
    CHECK_EQ(switchml_open(&config, &context), SWITCHML_ECONFIG);
    CHECK_MENTIONS(switchml_last_error(), "SWITCHML_CONTROLLER");
}

TEST(a_host_without_a_device_is_told_so) {
    const bool rdma = std::string(switchml_transport()) == "rdma";
    setenv("SWITCHML_DPDK_EAL_OPTIONS", "--no-huge --no-pci -m 64", 1);
    const switchml_config config = config_for("127.0.0.1:1");
    for (int attempt = 0; attempt < 2; ++attempt) {  // the second finds what the first left
        switchml_context *context = nullptr;
        const switchml_status status = switchml_open(&config, &context);
        CHECK(context == nullptr);
        CHECK_EQ(status, SWITCHML_ECONFIG);
        CHECK_MENTIONS(switchml_last_error(), rdma ? "no RDMA device" : "DPDK found no port");
    }
}

CHECK_MAIN()
