// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLLibrary.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace c10d {
namespace switchml_detail {

namespace {

std::string whyNot() {
    const char *const reason = dlerror();
    return reason != nullptr ? reason : "unknown reason";
}

template <typename Function>
void resolveSymbol(void *handle, const char *name, Function &function) {
    void *const symbol = dlsym(handle, name);
    if (symbol == nullptr) {
        throw std::runtime_error(std::string("the SwitchML library lacks ") + name + ": " + whyNot() +
                                 "; install libswitchml 1.1 or later");
    }
    function = reinterpret_cast<Function>(symbol);
}

// The text that one of the library's functions writes.
template <typename Write>
std::string textOf(Write write) {
    std::string text(write(nullptr, 0), '\0');
    text.resize(write(&text[0], text.size() + 1));
    return text;
}

}  // namespace

std::shared_ptr<Library> Library::load(const std::string &name) {
    void *const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        throw std::runtime_error("cannot load the SwitchML library " + name + ": " + whyNot());
    }
    std::shared_ptr<Library> library(new Library());
    resolveSymbol(handle, "switchml_abi_version", library->abiVersion_);
    if (library->abiVersion_() != SWITCHML_ABI_VERSION) {
        throw std::runtime_error("the SwitchML library " + name + " has ABI version " +
                                 std::to_string(library->abiVersion_()) + ", this PyTorch needs " +
                                 std::to_string(SWITCHML_ABI_VERSION) +
                                 ": install a libswitchml of that major version");
    }
    library->resolveSymbols(handle);
    return library;
}

void Library::resolveSymbols(void *handle) {
    resolveSymbol(handle, "switchml_strerror", strerror_);
    resolveSymbol(handle, "switchml_last_error", lastError);
    resolveSymbol(handle, "switchml_open", open);
    resolveSymbol(handle, "switchml_allreduce_submit", allreduceSubmit);
    resolveSymbol(handle, "switchml_abort", abort);
    resolveSymbol(handle, "switchml_get_stats", getStats);
    resolveSymbol(handle, "switchml_close", close);
    resolveSymbol(handle, "switchml_resolve", resolve_);
    resolveSymbol(handle, "switchml_common_settings", commonSettings_);
    resolveSymbol(handle, "switchml_compare_reports", compareReports_);
    resolveSymbol(handle, "switchml_describe_library", describeLibrary_);
    resolveSymbol(handle, "switchml_describe_stats", describeStats_);
}

std::string Library::explain(switchml_status status, const char *message) const {
    std::string result = strerror_(status);
    if (message != nullptr && *message != '\0') {
        result += std::string(": ") + message;
    }
    return result;
}

switchml_config Library::resolve(const switchml_config &config) const {
    switchml_config resolved{};
    resolved.struct_size = sizeof(resolved);
    const switchml_status status = resolve_(&config, &resolved);
    if (status != SWITCHML_OK) {
        throw std::runtime_error(explain(status, lastError()));
    }
    return resolved;
}

std::string Library::commonSettings(const switchml_config &resolved) const {
    return textOf([&](char *text, size_t size) { return commonSettings_(&resolved, text, size); });
}

std::string Library::compareReports(const std::vector<const char *> &reports, uint32_t timeoutMs) const {
    const auto count = static_cast<uint32_t>(reports.size());
    return textOf(
        [&](char *text, size_t size) { return compareReports_(reports.data(), count, timeoutMs, text, size); });
}

std::string Library::describe() const { return textOf(describeLibrary_); }

std::string Library::describe(const switchml_stats &stats) const {
    return textOf([&](char *text, size_t size) { return describeStats_(&stats, text, size); });
}

}  // namespace switchml_detail
}  // namespace c10d
