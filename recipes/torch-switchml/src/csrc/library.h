// SPDX-License-Identifier: BSD-3-Clause
//
// The SwitchML transport, found at run time: the extension has no link-time
// dependency on it, so transports swap in place and a process that never
// delegates never maps one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <switchml.h>

namespace torch_switchml {

class Library {
 public:
  // Maps `name` (a soname, searched along this extension's own runpath, or a
  // path) with RTLD_LOCAL, so that what the transport links to stays out of
  // everybody's sight, and never unmaps it: its threads may outlive a session.
  // Throws std::runtime_error when it cannot be loaded, lacks a function or
  // speaks another ABI version.
  static std::shared_ptr<Library> load(const std::string& name);

  const std::string& path() const { return path_; }
  std::string version() const { return version_(); }
  std::string transport() const { return transport_(); }
  uint32_t abi_version() const { return abi_version_(); }

  decltype(&::switchml_strerror) strerror = nullptr;
  decltype(&::switchml_last_error) last_error = nullptr;
  decltype(&::switchml_open) open = nullptr;
  decltype(&::switchml_allreduce_submit) allreduce_submit = nullptr;
  decltype(&::switchml_abort) abort = nullptr;
  decltype(&::switchml_get_stats) get_stats = nullptr;
  decltype(&::switchml_close) close = nullptr;

  // "what the status means: what happened", with the library's own words.
  std::string explain(switchml_status status, const char* message) const;

 private:
  Library() = default;
  void resolve(void* handle);
  void check_abi() const;

  std::string path_;
  decltype(&::switchml_abi_version) abi_version_ = nullptr;
  decltype(&::switchml_transport) transport_ = nullptr;
  decltype(&::switchml_version) version_ = nullptr;
};

} // namespace torch_switchml
