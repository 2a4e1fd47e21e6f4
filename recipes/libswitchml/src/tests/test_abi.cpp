// SPDX-License-Identifier: BSD-3-Clause
//
// The C ABI of any transport, without a switch: what it says of itself and which arguments it refuses.
#include <cstdint>
#include <cstring>
#include <string>

#include "completion.hpp"
#include "wire/check.hpp"

using namespace switchml::testing;

namespace {

void ignore(void *, switchml_status, const char *) {}

switchml_config config_for(const char *controller) {
    switchml_config config{};
    config.struct_size = sizeof config;
    config.num_workers = 1;
    config.controller = controller;
    return config;
}

}  // namespace

TEST(the_library_says_what_it_is) {
    CHECK_EQ(switchml_abi_version(), std::uint32_t{SWITCHML_ABI_VERSION});
    CHECK_EQ(std::string(switchml_transport()), SWITCHML_EXPECTED_TRANSPORT);
    CHECK_EQ(std::string(switchml_version()), SWITCHML_EXPECTED_VERSION);
}

TEST(every_status_has_a_sentence_of_its_own) {
    for (int a = SWITCHML_OK; a <= SWITCHML_EMISMATCH + 1; ++a) {
        for (int b = SWITCHML_OK; b < a; ++b) {
            CHECK(std::strcmp(switchml_strerror(static_cast<switchml_status>(a)),
                              switchml_strerror(static_cast<switchml_status>(b))) != 0);
        }
    }
}

TEST(null_arguments_are_refused) {
    switchml_context *context = reinterpret_cast<switchml_context *>(1);
    CHECK_EQ(switchml_open(nullptr, &context), SWITCHML_EINVAL);
    CHECK(context == nullptr);
    const switchml_config config = config_for("127.0.0.1:1");
    CHECK_EQ(switchml_open(&config, nullptr), SWITCHML_EINVAL);
    CHECK_EQ(switchml_allreduce_submit(nullptr, nullptr, nullptr, 0, SWITCHML_INT32, ignore, nullptr), SWITCHML_EINVAL);
    CHECK_EQ(switchml_abort(nullptr), SWITCHML_EINVAL);
    CHECK_EQ(switchml_get_stats(nullptr, nullptr), SWITCHML_EINVAL);
    switchml_close(nullptr);
}

TEST(an_opening_that_is_cancelled_before_it_begins_opens_nothing) {
    switchml_config config = config_for("127.0.0.1:1");
    config.is_cancelled = [](void *user) { return *static_cast<int *>(user); };
    int cancelled = 1;
    config.is_cancelled_user = &cancelled;
    switchml_context *context = nullptr;
    CHECK_EQ(switchml_open(&config, &context), SWITCHML_EABORTED);
    CHECK(context == nullptr);
}

CHECK_MAIN()
