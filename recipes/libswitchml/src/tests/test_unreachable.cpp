// SPDX-License-Identifier: BSD-3-Clause
//
// A controller that is not named or not there.
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "completion.hpp"
#include "wire/check.hpp"
#include "wire/udp_socket.hpp"

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

TEST(a_refused_connection_is_told_from_one_without_an_answer) {
    switchml_config config = config_for("127.0.0.1:1");
    config.worker_port = 4301;
    config.connect_timeout_ms = 300;
    switchml_context *context = nullptr;
    CHECK_EQ(switchml_open(&config, &context), SWITCHML_EUNREACHABLE);
    CHECK_MENTIONS(switchml_last_error(), "127.0.0.1:1 were refused for 300 ms");
    CHECK(std::string(switchml_last_error()).find("did not answer") == std::string::npos);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    const switchml::wire::SocketAddress address({0x7F000001, 0});
    CHECK_EQ(bind(listener, address.get(), address.size()), 0);
    CHECK_EQ(listen(listener, 1), 0);  // the system connects, and nobody says a word
    const std::string target = switchml::wire::to_text(switchml::wire::local_endpoint(listener));
    config.controller = target.c_str();
    CHECK_EQ(switchml_open(&config, &context), SWITCHML_EUNREACHABLE);
    close(listener);
    CHECK_MENTIONS(switchml_last_error(), target + " did not answer within 300 ms");
}

TEST(an_opening_that_is_cancelled_while_it_connects_ends_and_gives_its_port_back) {
    switchml_config config = config_for("127.0.0.1:1");
    config.worker_port = 4302;
    config.connect_timeout_ms = 600000;
    int asked = 0;
    config.is_cancelled = [](void *user) { return ++*static_cast<int *>(user) > 2 ? 1 : 0; };
    config.is_cancelled_user = &asked;
    switchml_context *context = nullptr;
    for (int attempt = 0; attempt < 2; ++attempt) {  // the second finds the port free
        asked = 0;
        CHECK_EQ(switchml_open(&config, &context), SWITCHML_EABORTED);
        CHECK(context == nullptr);
        CHECK(asked > 2);
        CHECK_MENTIONS(switchml_last_error(), "is_cancelled");
    }
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
