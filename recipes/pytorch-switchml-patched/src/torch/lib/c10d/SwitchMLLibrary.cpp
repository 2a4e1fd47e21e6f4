// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLLibrary.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <stdexcept>

namespace c10d {
namespace switchml_detail {

namespace {

std::string whyNot() {
  const char* const reason = dlerror();
  return reason != nullptr ? reason : "unknown reason";
}

template <typename Function>
void resolveSymbol(void* handle, const char* name, Function& function) {
  void* const symbol = dlsym(handle, name);
  if (symbol == nullptr) {
    throw std::runtime_error(
        std::string("the SwitchML library lacks ") + name + ": " + whyNot());
  }
  function = reinterpret_cast<Function>(symbol);
}

std::string pathOf(const void* symbol, const std::string& name) {
  Dl_info info{};
  const bool known = dladdr(symbol, &info) != 0 && info.dli_fname != nullptr;
  return known ? info.dli_fname : name;
}

} // namespace

std::string quote(const std::string& text) {
  std::string result = "\"";
  for (const char character : text) {
    const auto code = static_cast<unsigned char>(character);
    if (code < 0x20) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", code);
      result += escaped.data();
    } else {
      result += character == '"' || character == '\\' ? "\\" : "";
      result += character;
    }
  }
  return result + "\"";
}

std::shared_ptr<Library> Library::load(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw std::runtime_error(
        "cannot load the SwitchML library " + name + ": " + whyNot());
  }
  std::shared_ptr<Library> library(new Library());
  library->resolve(handle);
  library->path_ =
      pathOf(reinterpret_cast<const void*>(library->abiVersion_), name);
  if (library->abiVersion_() != SWITCHML_ABI_VERSION) {
    throw std::runtime_error(
        "the SwitchML library " + library->path_ + " has ABI version " +
        std::to_string(library->abiVersion_()) + ", this PyTorch needs " +
        std::to_string(SWITCHML_ABI_VERSION) +
        ": install a libswitchml of that major version");
  }
  return library;
}

void Library::resolve(void* handle) {
  resolveSymbol(handle, "switchml_abi_version", abiVersion_);
  resolveSymbol(handle, "switchml_transport", transport_);
  resolveSymbol(handle, "switchml_version", version_);
  resolveSymbol(handle, "switchml_strerror", strerror_);
  resolveSymbol(handle, "switchml_last_error", lastError);
  resolveSymbol(handle, "switchml_open", open);
  resolveSymbol(handle, "switchml_allreduce_submit", allreduceSubmit);
  resolveSymbol(handle, "switchml_get_stats", getStats);
  resolveSymbol(handle, "switchml_close", close);
}

std::string Library::transport() const {
  return transport_();
}

std::string Library::explain(switchml_status status, const char* message)
    const {
  std::string result = strerror_(status);
  if (message != nullptr && *message != '\0') {
    result += std::string(": ") + message;
  }
  return result;
}

std::string Library::describe() const {
  return "{" + quote("path") + ": " + quote(path_) + ", " + quote("version") +
      ": " + quote(version_()) + ", " + quote("transport") + ": " +
      quote(transport()) + ", " + quote("abi_version") + ": " +
      std::to_string(abiVersion_()) + "}";
}

} // namespace switchml_detail
} // namespace c10d
