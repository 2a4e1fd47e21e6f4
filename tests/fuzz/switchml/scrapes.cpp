// SPDX-License-Identifier: BSD-3-Clause
//
// Requests to the metrics server: one response, well framed, whatever is asked; and
// the text of metrics, whatever the jobs are named.
#include <algorithm>
#include <chrono>
#include <string>

#include "input.hpp"
#include "metrics.hpp"
#include "metrics_server.hpp"

using namespace switchml;
using namespace switchml::softswitch;

namespace {

const std::string kMetrics = "switchml_switch_sessions 1\n";

void check_response(const std::string &request, const std::string &response) {
    const std::size_t head = response.find("\r\n\r\n");
    REQUIRE(response.rfind("HTTP/1.1 ", 0) == 0 && head != std::string::npos);
    const std::size_t length_at = response.find("\r\nContent-Length: ");
    REQUIRE(length_at < head && response.find("\r\nConnection: close") <= head);
    const std::size_t length = std::stoul(response.substr(length_at + 18));
    const std::size_t body = response.size() - head - 4;
    const bool found = response.rfind("HTTP/1.1 200 ", 0) == 0;
    const bool understood = response.rfind("HTTP/1.1 400 ", 0) != 0;
    REQUIRE(body == (understood && request.rfind("HEAD ", 0) == 0 ? 0 : length));
    REQUIRE(!found || request.rfind("GET /metrics", 0) == 0 || request.rfind("HEAD /metrics", 0) == 0);
    REQUIRE(found || response.find(kMetrics) == std::string::npos);
}

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
    check_response(text, answer_scrape(text, [] { return kMetrics; }));
    check_text(to_prometheus({}, {{7, text, 2, 2, std::chrono::milliseconds(5)}}));
    REQUIRE(fuzz::is_printable(printable(text)));
    return 0;
}
