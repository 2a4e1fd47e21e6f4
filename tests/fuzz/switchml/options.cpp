// SPDX-License-Identifier: BSD-3-Clause
//
// The switch's command line: words that end with line breaks.
#include "options.hpp"

#include <vector>

#include "input.hpp"
#include "wire/udp_socket.hpp"

using namespace switchml;
using namespace switchml::softswitch;

namespace {

void check(const Options &options) {
    if (options.help || options.version) return;
    REQUIRE(!options.address.is_unspecified());
    REQUIRE(options.max_workers >= 1 && options.max_workers <= wire::kMaxWorkers);
    REQUIRE(options.max_sessions >= 1 && options.max_sessions <= 64);
    REQUIRE(options.lease_ms >= 10 && options.lease_ms <= 86400000);
    REQUIRE(options.delay_ms >= 1 && options.delay_ms <= 10000);
    for (const double rate : {options.drop_rate, options.drop_result_rate, options.duplicate_rate, options.delay_rate,
                              options.reorder_rate})
        REQUIRE(rate >= 0 && rate < 1);
    REQUIRE(options.tls_cert.empty() == options.tls_key.empty());
    REQUIRE(options.tls_client_ca.empty() || !options.tls_cert.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    fuzz::Input input(data, bytes);
    std::vector<std::string> words{"switchml-switch"};
    while (input.left() > 0) words.push_back(input.until('\n'));
    std::vector<const char *> arguments;
    for (const std::string &word : words) arguments.push_back(word.c_str());
    try {
        check(parse_options(static_cast<int>(arguments.size()), arguments.data()));
    } catch (const UsageError &error) {
        REQUIRE(*error.what() != '\0');
    }
    return 0;
}
