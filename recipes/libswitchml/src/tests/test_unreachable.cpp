// SPDX-License-Identifier: BSD-3-Clause
//
// A controller that is not named or not there.
#include <chrono>
#include <cstdlib>
#include <string>

#include "completion.hpp"
#include "wire/check.hpp"

using namespace switchml::testing;

namespace {

using Seconds = std::chrono::duration<double>;

switchml_config config_for(const char *controller) {
    switchml_config config{};
    config.struct_size = sizeof config;
    config.num_workers = 1;
    config.controller = controller;
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

TEST(an_absent_controller_is_unreachable_within_its_time) {
    switchml_config config = config_for("127.0.0.1:1");
    config.worker_port = 4300;
    config.connect_timeout_ms = 300;
    switchml_context *context = nullptr;
    const auto start = std::chrono::steady_clock::now();
    CHECK_EQ(switchml_open(&config, &context), SWITCHML_EUNREACHABLE);
    const Seconds took = std::chrono::steady_clock::now() - start;
    CHECK(context == nullptr);
    CHECK(took.count() < 3);
    CHECK_MENTIONS(switchml_last_error(), "127.0.0.1:1");
    CHECK_MENTIONS(switchml_last_error(), "SWITCHML_CONTROLLER");
}

CHECK_MAIN()
