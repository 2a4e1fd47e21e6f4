// SPDX-License-Identifier: BSD-3-Clause
#include "library.h"

#include <dlfcn.h>

#include <stdexcept>

namespace torch_switchml {

namespace {

template <typename Function>
void resolve_symbol(void* handle, const char* name, Function& function) {
  dlerror();
  void* const symbol = dlsym(handle, name);
  if (symbol == nullptr) {
    const char* const reason = dlerror();
    throw std::runtime_error(
        std::string("the SwitchML library lacks ") + name + ": " +
        (reason != nullptr ? reason : "no such symbol"));
  }
  function = reinterpret_cast<Function>(symbol);
}

std::string path_of(const void* symbol, const std::string& name) {
  Dl_info info{};
  if (dladdr(symbol, &info) != 0 && info.dli_fname != nullptr) {
    return info.dli_fname;
  }
  return name;
}

} // namespace

std::shared_ptr<Library> Library::load(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    throw std::runtime_error(
        "cannot load the SwitchML library " + name + ": " +
        (reason != nullptr ? reason : "unknown reason"));
  }
  std::shared_ptr<Library> library(new Library());
  library->resolve(handle);
  library->path_ = path_of(reinterpret_cast<const void*>(library->abi_version_), name);
  library->check_abi();
  return library;
}

void Library::resolve(void* handle) {
  resolve_symbol(handle, "switchml_abi_version", abi_version_);
  resolve_symbol(handle, "switchml_transport", transport_);
  resolve_symbol(handle, "switchml_version", version_);
  resolve_symbol(handle, "switchml_strerror", strerror);
  resolve_symbol(handle, "switchml_last_error", last_error);
  resolve_symbol(handle, "switchml_open", open);
  resolve_symbol(handle, "switchml_allreduce_submit", allreduce_submit);
  resolve_symbol(handle, "switchml_abort", abort);
  resolve_symbol(handle, "switchml_get_stats", get_stats);
  resolve_symbol(handle, "switchml_close", close);
}

void Library::check_abi() const {
  const uint32_t found = abi_version();
  if (found != SWITCHML_ABI_VERSION) {
    throw std::runtime_error(
        "the SwitchML library " + path_ + " has ABI version " + std::to_string(found) +
        ", this torch-switchml needs " + std::to_string(SWITCHML_ABI_VERSION) +
        ": install a libswitchml of major version " + std::to_string(SWITCHML_ABI_VERSION));
  }
}

std::string Library::explain(switchml_status status, const char* message) const {
  std::string result = strerror(status);
  if (message != nullptr && *message != '\0') {
    result += ": ";
    result += message;
  }
  return result;
}

} // namespace torch_switchml
