// SPDX-License-Identifier: BSD-3-Clause
//
// What the published client library is configured with. Users set the same
// variables as for the udp transport; what only its backends know comes from
// variables of its own or from a switchml.cfg, the file of the published
// programs. A variable wins over the file, and switchml_config over both.
#pragma once

#include <map>
#include <string>

#include "config.h"
#include "settings.hpp"

namespace switchml::published {

class ConfigurationFile {
  public:
    // The file that Config::FindFile names; nothing is in it when there is none.
    // Error ECONFIG when it is not to be read, or has keys or values that make no sense.
    static ConfigurationFile find();
    explicit ConfigurationFile(const std::string &path);
    ConfigurationFile() = default;

    // What the file says about a variable that `environment` does not have.
    Environment beneath(Environment environment) const;

    // The value of a key, or of the variable that stands for it.
    std::string text(const Environment &environment, const char *key, const std::string &fallback) const;
    std::uint32_t number(const Environment &environment, const char *key, std::uint32_t fallback,
                         std::uint32_t high) const;
    double decimal(const Environment &environment, const char *key, double fallback) const;
    bool boolean(const Environment &environment, const char *key, bool fallback) const;

  private:
    void check() const;

    std::string path_;
    std::map<std::string, std::string> values_;
};

// Error ECONFIG.
Config make_config(const Settings &settings, const ConfigurationFile &file, const Environment &environment);

}  // namespace switchml::published
