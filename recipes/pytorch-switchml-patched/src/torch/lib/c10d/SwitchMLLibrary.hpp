// SPDX-License-Identifier: BSD-3-Clause
//
// libswitchml, found at run time: PyTorch has no link-time dependency on it, so
// transports swap in place and a process that never delegates never maps one.
// RTLD_LOCAL keeps what a transport brings along (another protobuf, gRPC, DPDK)
// out of PyTorch's sight.
#pragma once

#include <switchml.h>

#include <memory>
#include <string>
#include <vector>

namespace c10d {
namespace switchml_detail {

class Library {
  public:
    // Maps `name` (a soname, searched along PyTorch's own runpath, or a path) and
    // never unmaps it: its threads may outlive a session. Throws
    // std::runtime_error when it cannot be loaded, lacks a function, or speaks
    // another version of the ABI.
    static std::shared_ptr<Library> load(const std::string &name);

    // "what the status means: what happened", in the library's own words.
    std::string explain(switchml_status status, const char *message) const;

    // As the functions of these names, with std::runtime_error for their errors.
    switchml_config resolve(const switchml_config &config) const;
    std::string commonSettings(const switchml_config &resolved) const;
    std::string compareReports(const std::vector<const char *> &reports, uint32_t timeoutMs) const;
    std::string describe() const;
    std::string describe(const switchml_stats &stats) const;

    decltype(&::switchml_last_error) lastError = nullptr;
    decltype(&::switchml_open) open = nullptr;
    decltype(&::switchml_allreduce_submit) allreduceSubmit = nullptr;
    decltype(&::switchml_abort) abort = nullptr;
    decltype(&::switchml_get_stats) getStats = nullptr;
    decltype(&::switchml_close) close = nullptr;

  private:
    Library() = default;
    void resolveSymbols(void *handle);

    decltype(&::switchml_abi_version) abiVersion_ = nullptr;
    decltype(&::switchml_strerror) strerror_ = nullptr;
    decltype(&::switchml_resolve) resolve_ = nullptr;
    decltype(&::switchml_common_settings) commonSettings_ = nullptr;
    decltype(&::switchml_compare_reports) compareReports_ = nullptr;
    decltype(&::switchml_describe_library) describeLibrary_ = nullptr;
    decltype(&::switchml_describe_stats) describeStats_ = nullptr;
};

}  // namespace switchml_detail
}  // namespace c10d
