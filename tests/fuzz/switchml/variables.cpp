// SPDX-License-Identifier: BSD-3-Clause
//
// What the environment asks of PyTorch 1.7.1's SwitchML: lines of NAME=VALUE; the
// first byte is a rank.
#include <chrono>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

#include "SwitchMLSettings.hpp"
#include "input.hpp"

using namespace switchml;
using c10d::switchml_detail::Settings;

namespace {

// The variables as putenv takes them, which copies nothing.
class Variables {
  public:
    explicit Variables(fuzz::Input &input) {
        while (input.left() > 0) {
            const std::string line = ("SWITCHML_" + input.until('\n')).c_str();  // to the first zero
            const std::size_t equals = line.find('=');
            if (equals != std::string::npos) set_[line.substr(0, equals)] = line;
        }
        for (auto &[name, assignment] : set_) putenv(assignment.data());
    }
    ~Variables() {
        for (const auto &[name, assignment] : set_) unsetenv(name.c_str());
    }
    Variables(const Variables &) = delete;
    Variables &operator=(const Variables &) = delete;

    // Whether a message begins with one of them and what it is set to.
    bool begin(const std::string &message) const {
        for (const auto &[name, assignment] : set_) {
            if (message.rfind(name + "='" + assignment.substr(name.size() + 1) + "'", 0) == 0) return true;
        }
        return false;
    }

  private:
    std::map<std::string, std::string> set_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    fuzz::Input input(data, bytes);
    const int rank = input.byte();
    const Variables variables(input);
    c10d::switchml_detail::isRequested();
    const Settings settings = Settings::read();
    REQUIRE(!settings.library.empty());
    REQUIRE(settings.jobTimeoutMs(std::chrono::milliseconds(1)) == (settings.jobTimeoutSet ? 0 : 1));
    REQUIRE(settings.statsPath(rank).find("{rank}") == std::string::npos);
    try {
        settings.check();
    } catch (const std::runtime_error &error) {
        REQUIRE(variables.begin(error.what()));
    }
    return 0;
}
