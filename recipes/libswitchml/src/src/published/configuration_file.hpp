// SPDX-License-Identifier: BSD-3-Clause
//
// switchml.cfg, the file of the published programs, and what its keys say where
// variables of the environment say nothing. Needs nothing of the published library.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>

#include "settings.hpp"

namespace switchml::published {

// The backend that is compiled in, the only one that a file may ask for.
const char *backend_name() noexcept;

class ConfigurationFile {
  public:
    // Error ECONFIG, which names the path, when the file is not to be read, or has keys or values that make no sense.
    explicit ConfigurationFile(const std::string &path);
    ConfigurationFile(std::istream &text, const std::string &path);
    ConfigurationFile() = default;  // says nothing

    // What the file says about a variable that `environment` does not have.
    Environment beneath(Environment environment) const;

    // The value of a key, or of the variable that stands for it. Error ECONFIG when it is none of the kind.
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

}  // namespace switchml::published
