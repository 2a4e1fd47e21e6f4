// SPDX-License-Identifier: BSD-3-Clause
//
// The SwitchML transport, found at run time: the extension has no link-time
// dependency on it, so transports swap in place and a process that never
// delegates never maps one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <switchml.h>

namespace torch_switchml {

class Library {
  public:
    // Maps `name` (a soname, searched along this extension's own runpath, or a
    // path) with RTLD_LOCAL, so that what the transport links to stays out of
    // everybody's sight, and never unmaps it: its threads may outlive a session.
    // Throws std::runtime_error when it cannot be loaded, lacks a function or
    // speaks another ABI version.
    static std::shared_ptr<Library> load(const std::string &name);

    decltype(&::switchml_strerror) strerror = nullptr;
    decltype(&::switchml_last_error) last_error = nullptr;
    decltype(&::switchml_open) open = nullptr;
    decltype(&::switchml_allreduce_submit) allreduce_submit = nullptr;
    decltype(&::switchml_abort) abort = nullptr;
    decltype(&::switchml_get_stats) get_stats = nullptr;
    decltype(&::switchml_close) close = nullptr;

    // "what the status means: what happened", with the library's own words.
    std::string explain(switchml_status status, const char *message) const;

    // What the library makes of the environment and its defaults for one worker, its texts null; and what of it all
    // workers must have alike, by name.
    struct Resolved {
        switchml_config config;
        std::map<std::string, std::string> common;
    };

    // As the library's functions of these names; std::runtime_error for their errors.
    Resolved resolve(const std::string &controller) const;
    std::string compare_reports(const std::vector<std::optional<std::string>> &reports, uint32_t timeout_ms) const;
    std::string describe() const;
    std::string describe_stats(const switchml_stats &stats) const;

  private:
    Library() = default;
    void resolve_symbols(void *handle);
    std::map<std::string, std::string> common_settings(const switchml_config &resolved) const;

    decltype(&::switchml_resolve) resolve_ = nullptr;
    decltype(&::switchml_common_settings) common_settings_ = nullptr;
    decltype(&::switchml_compare_reports) compare_reports_ = nullptr;
    decltype(&::switchml_describe_library) describe_library_ = nullptr;
    decltype(&::switchml_describe_stats) describe_stats_ = nullptr;
};

}  // namespace torch_switchml
