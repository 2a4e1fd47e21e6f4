// SPDX-License-Identifier: BSD-3-Clause
#include "library.h"

#include <dlfcn.h>

#include <sstream>
#include <stdexcept>
#include <utility>

namespace torch_switchml {

namespace {

template <typename Function>
void resolve_symbol(void *handle, const char *name, Function &function) {
    dlerror();
    void *const symbol = dlsym(handle, name);
    if (symbol == nullptr) {
        const char *const reason = dlerror();
        throw std::runtime_error(std::string("the SwitchML library lacks ") + name + ": " +
                                 (reason != nullptr ? reason : "no such symbol") +
                                 "; install libswitchml 1.1 or later");
    }
    function = reinterpret_cast<Function>(symbol);
}

// The text that one of the library's functions writes.
template <typename Write>
std::string text_of(Write write) {
    std::string text(write(nullptr, 0), '\0');
    text.resize(write(text.data(), text.size() + 1));
    return text;
}

void check_abi(void *handle, const std::string &name) {
    decltype(&::switchml_abi_version) abi_version = nullptr;
    resolve_symbol(handle, "switchml_abi_version", abi_version);
    const uint32_t found = abi_version();
    if (found != SWITCHML_ABI_VERSION) {
        throw std::runtime_error("the SwitchML library " + name + " has ABI version " + std::to_string(found) +
                                 ", this torch-switchml needs " + std::to_string(SWITCHML_ABI_VERSION) +
                                 ": install a libswitchml of major version " + std::to_string(SWITCHML_ABI_VERSION));
    }
}

}  // namespace

std::shared_ptr<Library> Library::load(const std::string &name) {
    void *const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char *const reason = dlerror();
        throw std::runtime_error("cannot load the SwitchML library " + name + ": " +
                                 (reason != nullptr ? reason : "unknown reason"));
    }
    check_abi(handle, name);
    std::shared_ptr<Library> library(new Library());
    library->resolve_symbols(handle);
    return library;
}

void Library::resolve_symbols(void *handle) {
    resolve_symbol(handle, "switchml_strerror", strerror);
    resolve_symbol(handle, "switchml_last_error", last_error);
    resolve_symbol(handle, "switchml_open", open);
    resolve_symbol(handle, "switchml_allreduce_submit", allreduce_submit);
    resolve_symbol(handle, "switchml_abort", abort);
    resolve_symbol(handle, "switchml_get_stats", get_stats);
    resolve_symbol(handle, "switchml_close", close);
    resolve_symbol(handle, "switchml_resolve", resolve_);
    resolve_symbol(handle, "switchml_common_settings", common_settings_);
    resolve_symbol(handle, "switchml_compare_reports", compare_reports_);
    resolve_symbol(handle, "switchml_describe_library", describe_library_);
    resolve_symbol(handle, "switchml_describe_stats", describe_stats_);
}

std::string Library::explain(switchml_status status, const char *message) const {
    std::string result = strerror(status);
    if (message != nullptr && *message != '\0') {
        result += ": ";
        result += message;
    }
    return result;
}

Library::Resolved Library::resolve(const std::string &controller) const {
    switchml_config config{};
    config.struct_size = sizeof(config);
    config.controller = controller.c_str();
    config.num_workers = 1;
    switchml_config resolved = config;
    const switchml_status status = resolve_(&config, &resolved);
    if (status != SWITCHML_OK) {
        throw std::runtime_error(explain(status, last_error()));
    }
    auto common = common_settings(resolved);
    resolved.controller = resolved.local_address = resolved.job_name = nullptr;  // live no longer than the next call
    return {resolved, std::move(common)};
}

std::map<std::string, std::string> Library::common_settings(const switchml_config &resolved) const {
    std::istringstream lines(text_of([&](char *text, size_t size) { return common_settings_(&resolved, text, size); }));
    std::map<std::string, std::string> result;
    for (std::string line; std::getline(lines, line);) {
        const auto tab = line.find('\t');
        result[line.substr(0, tab)] = tab == std::string::npos ? "" : line.substr(tab + 1);
    }
    return result;
}

std::string Library::compare_reports(const std::vector<std::optional<std::string>> &reports,
                                     uint32_t timeout_ms) const {
    std::vector<const char *> texts;
    for (const auto &report : reports) {
        texts.push_back(report ? report->c_str() : nullptr);
    }
    const auto count = static_cast<uint32_t>(texts.size());
    return text_of(
        [&](char *text, size_t size) { return compare_reports_(texts.data(), count, timeout_ms, text, size); });
}

std::string Library::describe() const { return text_of(describe_library_); }

std::string Library::describe_stats(const switchml_stats &stats) const {
    return text_of([&](char *text, size_t size) { return describe_stats_(&stats, text, size); });
}

}  // namespace torch_switchml
