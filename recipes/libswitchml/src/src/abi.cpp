// SPDX-License-Identifier: BSD-3-Clause
//
// The C ABI: argument checks, and the wall that no exception passes.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "error.hpp"
#include "settings.hpp"
#include "switchml.h"
#include "transport.hpp"

struct switchml_context {
    std::unique_ptr<switchml::Transport> transport;
};

namespace {

using switchml::Error;

thread_local std::string last_error;

switchml_status remember(switchml_status status, const char *message) noexcept {
    try {
        last_error = message;
    } catch (const std::bad_alloc &) {
        last_error.clear();
    }
    return status;
}

template <class Body>
switchml_status guarded(Body &&body) noexcept {
    try {
        body();
        return SWITCHML_OK;
    } catch (const Error &error) {
        return remember(error.status(), error.what());
    } catch (const std::bad_alloc &) {
        return remember(SWITCHML_ENOMEM, "out of memory");
    } catch (const std::system_error &error) {
        return remember(SWITCHML_EIO, error.what());
    } catch (const std::exception &error) {
        return remember(SWITCHML_EINTERNAL, error.what());
    } catch (...) {
        return remember(SWITCHML_EINTERNAL, "an unknown exception; this is a defect in libswitchml");
    }
}

void require(bool condition, const char *message) {
    if (!condition) throw Error(SWITCHML_EINVAL, message);
}

void check_buffers(const void *in, const void *out, std::uint64_t numel) {
    constexpr std::uint64_t kMaxNumel = PTRDIFF_MAX / 4;
    if (numel == 0) return;
    require(in != nullptr && out != nullptr, "in or out is NULL and numel is not 0");
    require(numel <= kMaxNumel, "numel is more than memory can hold");
    const auto from = reinterpret_cast<std::uintptr_t>(in);
    const auto to = reinterpret_cast<std::uintptr_t>(out);
    require(from % 4 == 0 && to % 4 == 0, "in or out is not aligned to its 4-byte elements");
    const std::uint64_t distance = from > to ? from - to : to - from;
    require(distance == 0 || distance >= 4 * numel, "in and out overlap; they must be equal or apart");
}

// What the texts of a resolved configuration point to.
struct ResolvedTexts {
    std::string controller;
    std::string local_address;
    std::string job_name;
};

const char *text_or_null(const std::string &text) { return text.empty() ? nullptr : text.c_str(); }

switchml_config to_config(const switchml::Settings &settings, ResolvedTexts &texts) {
    texts.controller = settings.controller_host.empty() ? "" : switchml::controller_target(settings);
    texts.local_address = settings.local_address ? switchml::wire::to_text(*settings.local_address) : "";
    texts.job_name = settings.job_name;
    switchml_config config{};
    config.rank = settings.rank;
    config.num_workers = settings.num_workers;
    config.controller = text_or_null(texts.controller);
    config.local_address = text_or_null(texts.local_address);
    config.worker_port = settings.worker_port;
    config.num_threads = settings.num_threads;
    config.max_outstanding_packets = settings.max_outstanding_packets;
    config.packet_numel = settings.packet_numel;
    config.retransmit_timeout_us = settings.retransmit_timeout_us;
    config.connect_timeout_ms = settings.connect_timeout_ms;
    config.job_timeout_ms = settings.job_timeout_ms;
    config.job_name = text_or_null(texts.job_name);
    return config;
}

// Into a struct of the caller's, which may be older or newer than ours: a newer one gets zeros in what is unknown here.
template <class Struct>
void copy_out(const Struct &from, Struct *to, const char *unset) {
    const std::size_t size = to->struct_size;
    require(size >= sizeof(std::size_t), unset);
    std::memcpy(to, &from, std::min(size, sizeof from));
    if (size > sizeof from) std::memset(reinterpret_cast<char *>(to) + sizeof from, 0, size - sizeof from);
    to->struct_size = size;
}

}  // namespace

extern "C" {

uint32_t switchml_abi_version(void) { return SWITCHML_ABI_VERSION; }

const char *switchml_transport(void) { return switchml::transport_name(); }

const char *switchml_version(void) { return SWITCHML_VERSION; }

const char *switchml_strerror(switchml_status status) {
    switch (status) {
        case SWITCHML_OK: return "no error";
        case SWITCHML_EINVAL: return "an argument is out of its range";
        case SWITCHML_ENOMEM: return "memory or another resource ran out";
        case SWITCHML_ECONFIG: return "the configuration is missing, malformed or contradictory";
        case SWITCHML_EUNREACHABLE: return "the switch or its controller cannot be reached";
        case SWITCHML_EREFUSED: return "the switch controller refused the session";
        case SWITCHML_ETIMEDOUT: return "another worker or the switch did not take part";
        case SWITCHML_EABORTED: return "the job was aborted";
        case SWITCHML_EIO: return "the operating system or a device refused an operation";
        case SWITCHML_EUNSUPPORTED: return "this transport cannot do that";
        case SWITCHML_EINTERNAL: return "a defect in the library";
        case SWITCHML_EMISMATCH: return "the workers submitted different jobs";
    }
    return "an unknown status";
}

const char *switchml_last_error(void) { return last_error.c_str(); }

switchml_status switchml_resolve(const switchml_config *config, switchml_config *resolved) {
    return guarded([&] {
        thread_local ResolvedTexts texts;
        require(config != nullptr && resolved != nullptr, "config or resolved is NULL");
        const switchml::Settings settings =
            switchml::resolve_settings(*config, switchml::transport_environment(), switchml::transport_has_controller(),
                                       switchml::transport_window());
        copy_out(to_config(settings, texts), resolved, "switchml_config.struct_size of resolved is not set");
    });
}

switchml_status switchml_open(const switchml_config *config, switchml_context **context) {
    if (context != nullptr) *context = nullptr;
    return guarded([&] {
        require(config != nullptr && context != nullptr, "config or context is NULL");
        const switchml::Settings settings =
            switchml::resolve_settings(*config, switchml::transport_environment(), switchml::transport_has_controller(),
                                       switchml::transport_window());
        auto opened = std::make_unique<switchml_context>();
        switchml::check_not_cancelled(settings);
        opened->transport = switchml::open_transport(settings);
        switchml::check_not_cancelled(settings);  // for transports that do not look at it meanwhile
        *context = opened.release();
    });
}

switchml_status switchml_allreduce_submit(switchml_context *context, const void *in, void *out, uint64_t numel,
                                          switchml_dtype dtype, switchml_callback callback, void *user) {
    return guarded([&] {
        require(context != nullptr, "context is NULL");
        require(callback != nullptr, "callback is NULL");
        require(dtype == SWITCHML_FLOAT32 || dtype == SWITCHML_INT32, "dtype is neither float32 nor int32");
        check_buffers(in, out, numel);
        context->transport->submit({in, out, numel, dtype, callback, user});
    });
}

switchml_status switchml_abort(switchml_context *context) {
    return guarded([&] {
        require(context != nullptr, "context is NULL");
        context->transport->abort();
    });
}

switchml_status switchml_get_stats(const switchml_context *context, switchml_stats *stats) {
    return guarded([&] {
        require(context != nullptr && stats != nullptr, "context or stats is NULL");
        switchml_stats current{};
        context->transport->read_stats(current);
        copy_out(current, stats, "switchml_stats.struct_size is not set");
    });
}

void switchml_close(switchml_context *context) { delete context; }

}  // extern "C"
