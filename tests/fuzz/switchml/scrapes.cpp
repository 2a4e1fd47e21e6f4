// SPDX-License-Identifier: BSD-3-Clause
//
// The text of metrics that Prometheus scrapes, whatever the jobs are named.
#include <algorithm>
#include <chrono>
#include <string>

#include "input.hpp"
#include "metrics.hpp"

using namespace switchml;
using namespace switchml::softswitch;

namespace {

// Each line is a comment or one metric of ours: a name cannot bring lines of its own.
void check_text(const std::string &text) {
    std::size_t lines = 0;
    for (std::size_t start = 0; start < text.size(); ++lines) {
        const std::size_t end = text.find('\n', start);
        REQUIRE(end != std::string::npos);
        const std::string line = text.substr(start, end - start);
        REQUIRE(line.rfind("# ", 0) == 0 || line.rfind("switchml_switch_", 0) == 0);
        start = end + 1;
    }
    static const std::size_t expected = [] {
        const std::string sound = to_prometheus({}, {{7, "job", 2, 2, std::chrono::milliseconds(5)}});
        return static_cast<std::size_t>(std::count(sound.begin(), sound.end(), '\n'));
    }();
    REQUIRE(lines == expected);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    fuzz::Input input(data, bytes);
    const std::string text = input.text(bytes);
    check_text(to_prometheus({}, {{7, text, 2, 2, std::chrono::milliseconds(5)}}));
    REQUIRE(fuzz::is_printable(printable(text)));
    return 0;
}
