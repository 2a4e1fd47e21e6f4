// SPDX-License-Identifier: BSD-3-Clause
//
// libswitchml, found at run time: PyTorch has no link-time dependency on it, so
// transports swap in place and a process that never delegates never maps one.
// RTLD_LOCAL keeps what a transport brings along (another protobuf, gRPC, DPDK)
// out of PyTorch's sight.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <switchml.h>

namespace c10d {
namespace switchml_detail {

// As a JSON string.
std::string quote(const std::string& text);

class Library {
 public:
  // Maps `name` (a soname, searched along PyTorch's own runpath, or a path) and
  // never unmaps it: its threads may outlive a session. Throws
  // std::runtime_error when it cannot be loaded, lacks a function, or speaks
  // another version of the ABI.
  static std::shared_ptr<Library> load(const std::string& name);

  std::string transport() const;

  // "what the status means: what happened", in the library's own words.
  std::string explain(switchml_status status, const char* message) const;

  // Path, version, transport and ABI version, as JSON.
  std::string describe() const;

  decltype(&::switchml_last_error) lastError = nullptr;
  decltype(&::switchml_open) open = nullptr;
  decltype(&::switchml_allreduce_submit) allreduceSubmit = nullptr;
  decltype(&::switchml_get_stats) getStats = nullptr;
  decltype(&::switchml_close) close = nullptr;

 private:
  Library() = default;
  void resolve(void* handle);

  std::string path_;
  decltype(&::switchml_abi_version) abiVersion_ = nullptr;
  decltype(&::switchml_transport) transport_ = nullptr;
  decltype(&::switchml_version) version_ = nullptr;
  decltype(&::switchml_strerror) strerror_ = nullptr;
};

} // namespace switchml_detail
} // namespace c10d
