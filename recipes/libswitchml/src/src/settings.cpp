// SPDX-License-Identifier: BSD-3-Clause
#include "settings.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "error.hpp"

namespace switchml {
namespace {

constexpr std::uint32_t kMaxWorkers = 32;
constexpr std::uint32_t kMaxThreads = 32;
constexpr std::uint32_t kMaxOutstanding = 4096;  // two sets' worth of ring positions in 8192 slots
constexpr std::uint32_t kMaxTimeoutMs = 24U * 3600U * 1000U;
constexpr std::uint16_t kDefaultControllerPort = 50099;

struct Range {
    const char *field;     // of switchml_config
    const char *variable;  // in the environment
    std::uint32_t fallback;
    std::uint32_t low;
    std::uint32_t high;
};

std::optional<std::uint32_t> parse_number(const std::string &text) {
    std::uint32_t value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return value;
}

std::string expected(const Range &range) {
    return "expected a whole number from " + std::to_string(range.low) + " to " + std::to_string(range.high);
}

std::uint32_t number(std::uint32_t given, const Range &range, const Environment &environment) {
    if (given != 0) {
        if (given < range.low || given > range.high) {
            throw Error(SWITCHML_EINVAL, std::string("switchml_config.") + range.field + " is " +
                                             std::to_string(given) + ", " + expected(range));
        }
        return given;
    }
    const auto text = environment(range.variable);
    if (!text) return range.fallback;
    const auto value = parse_number(*text);
    if (!value || *value < range.low || *value > range.high) {
        throw Error(SWITCHML_ECONFIG, std::string(range.variable) + "='" + *text + "', " + expected(range));
    }
    return *value;
}

struct Sourced {
    std::string text;
    std::string name;  // where the text comes from, for messages
    switchml_status blame;
};

std::optional<Sourced> text_setting(const char *given, const char *field, const char *variable,
                                    const Environment &environment) {
    if (given != nullptr && *given != '\0')
        return Sourced{given, std::string("switchml_config.") + field, SWITCHML_EINVAL};
    if (auto text = environment(variable)) return Sourced{*text, variable, SWITCHML_ECONFIG};
    return std::nullopt;
}

// As messages to the controller need it.
bool is_utf8(const std::string &text) {
    constexpr std::uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // by the number of further bytes
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i++]);
        const unsigned more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
        if ((lead >= 0x80 && lead < 0xC0) || lead >= 0xF8 || text.size() - i < more) return false;
        std::uint32_t code = more == 0 ? lead : lead & (0x3FU >> more);
        for (unsigned left = more; left > 0; --left) {
            const auto next = static_cast<unsigned char>(text[i++]);
            if ((next & 0xC0U) != 0x80U) return false;
            code = code << 6 | (next & 0x3FU);
        }
        const bool surrogate = code >= 0xD800 && code < 0xE000;
        if (code < kLeast[more] || code > 0x10FFFF || surrogate) return false;
    }
    return true;
}

struct HostPort {
    std::string host;
    std::uint16_t port;
};

// "switch", "10.0.0.5:50099", "[fd00::5]:50099": nothing where it is none of these.
std::optional<HostPort> parse_host_port(const std::string &text) {
    const bool bracketed = !text.empty() && text.front() == '[';
    const std::size_t end = bracketed ? text.find(']') : std::min(text.find(':'), text.size());
    if (end == std::string::npos) return std::nullopt;
    const std::string host = bracketed ? text.substr(1, end - 1) : text.substr(0, end);
    const std::string rest = text.substr(bracketed ? end + 1 : end);
    if (host.empty() || host.find_first_of(" \t/@[]") != std::string::npos) return std::nullopt;
    if (bracketed && (host.find(':') == std::string::npos || !wire::IpAddress::parse(host))) return std::nullopt;
    if (rest.empty()) return HostPort{host, kDefaultControllerPort};
    const auto port = rest.front() == ':' ? parse_number(rest.substr(1)) : std::nullopt;
    if (!port || *port == 0 || *port > 65535) return std::nullopt;
    return HostPort{host, static_cast<std::uint16_t>(*port)};
}

void resolve_controller(const switchml_config &config, const Environment &environment, bool needed,
                        Settings &settings) {
    const auto controller = text_setting(config.controller, "controller", "SWITCHML_CONTROLLER", environment);
    if (!controller && !needed) return;
    if (!controller) {
        throw Error(SWITCHML_ECONFIG, "no controller: set SWITCHML_CONTROLLER to the switch controller's host[:port]");
    }
    const std::optional<HostPort> parsed = parse_host_port(controller->text);
    if (!parsed) {
        throw Error(controller->blame, controller->name + "='" + controller->text +
                                           "', expected host or host:port with a name, an IPv4 address, or an IPv6 "
                                           "address in brackets as host");
    }
    settings.controller_host = parsed->host;
    settings.controller_port = parsed->port;
}

void resolve_local_address(const switchml_config &config, const Environment &environment, Settings &settings) {
    const auto local = text_setting(config.local_address, "local_address", "SWITCHML_LOCAL_ADDRESS", environment);
    if (!local) return;
    const auto address = wire::IpAddress::parse(local->text);
    if (!address || address->is_unspecified()) {
        throw Error(local->blame,
                    local->name + "='" + local->text + "', expected one of this host's IPv4 or IPv6 addresses");
    }
    settings.local_address = address;
}

void resolve_job_name(const switchml_config &config, const Environment &environment, Settings &settings) {
    const auto name = text_setting(config.job_name, "job_name", "SWITCHML_JOB_NAME", environment);
    if (!name) return;
    if (!is_utf8(name->text)) throw Error(name->blame, name->name + " is not UTF-8");
    settings.job_name = name->text;
}

bool resolve_switch(const char *variable, const Environment &environment) {
    const auto text = environment(variable);
    if (!text || *text == "1") return true;
    if (*text == "0") return false;
    throw Error(SWITCHML_ECONFIG, std::string(variable) + "='" + *text + "', expected 0 or 1");
}

// The caller may be older (a shorter struct) or newer (a longer one, with fields that must then be unused).
switchml_config widen(const switchml_config &given) {
    constexpr std::size_t kLeast = offsetof(switchml_config, num_workers) + sizeof given.num_workers;
    if (given.struct_size < kLeast) {
        throw Error(SWITCHML_EINVAL, "switchml_config.struct_size is " + std::to_string(given.struct_size) +
                                         ", expected sizeof(switchml_config)");
    }
    const auto *bytes = reinterpret_cast<const unsigned char *>(&given);
    if (given.struct_size > sizeof given &&
        std::any_of(bytes + sizeof given, bytes + given.struct_size, [](unsigned char byte) { return byte != 0; })) {
        throw Error(SWITCHML_EUNSUPPORTED,
                    "switchml_config sets fields that this library does not know; update libswitchml");
    }
    switchml_config config{};
    std::memcpy(&config, &given, std::min(given.struct_size, sizeof config));
    return config;
}

void check_workers(const Settings &settings) {
    if (settings.num_workers < 1 || settings.num_workers > kMaxWorkers) {
        throw Error(SWITCHML_EINVAL, "num_workers is " + std::to_string(settings.num_workers) +
                                         ", expected 1 to 32: the switch keeps a 32-bit bitmap of workers");
    }
    if (settings.rank >= settings.num_workers) {
        throw Error(SWITCHML_EINVAL, "rank is " + std::to_string(settings.rank) + ", expected below num_workers, " +
                                         std::to_string(settings.num_workers));
    }
}

void check_threads(const Settings &settings) {
    if (settings.max_outstanding_packets % settings.num_threads != 0) {
        throw Error(SWITCHML_ECONFIG, "max_outstanding_packets (SWITCHML_MAX_OUTSTANDING_PACKETS), " +
                                          std::to_string(settings.max_outstanding_packets) +
                                          ", must be a multiple of num_threads (SWITCHML_NUM_THREADS), " +
                                          std::to_string(settings.num_threads));
    }
    if (settings.worker_port + settings.num_threads - 1 > 65535) {
        throw Error(SWITCHML_ECONFIG, "worker_port (SWITCHML_WORKER_PORT) " + std::to_string(settings.worker_port) +
                                          " leaves no port for each of " + std::to_string(settings.num_threads) +
                                          " threads (SWITCHML_NUM_THREADS)");
    }
}

}  // namespace

std::optional<std::string> process_environment(const char *name) {
    const char *text = std::getenv(name);
    if (text == nullptr || *text == '\0') return std::nullopt;
    return std::string(text);
}

void check_not_cancelled(const Settings &settings) {
    if (settings.is_cancelled && settings.is_cancelled())
        throw Error(SWITCHML_EABORTED, "the caller of switchml_open no longer waits for it (is_cancelled)");
}

std::string controller_target(const Settings &settings) {
    const bool ipv6 = settings.controller_host.find(':') != std::string::npos;
    return (ipv6 ? "[" + settings.controller_host + "]" : settings.controller_host) + ":" +
           std::to_string(settings.controller_port);
}

void resolve_access(const Environment &environment, Settings &settings) {
    settings.token_file = environment("SWITCHML_TOKEN_FILE").value_or("");
    settings.session_token_file = environment("SWITCHML_SESSION_TOKEN_FILE").value_or("");
    settings.tls_ca = environment("SWITCHML_TLS_CA").value_or("");
    settings.tls_cert = environment("SWITCHML_TLS_CERT").value_or("");
    settings.tls_key = environment("SWITCHML_TLS_KEY").value_or("");
    if (settings.tls_cert.empty() != settings.tls_key.empty())
        throw Error(SWITCHML_ECONFIG, "SWITCHML_TLS_CERT and SWITCHML_TLS_KEY are needed together");
    if (!settings.tls_cert.empty() && settings.tls_ca.empty())
        throw Error(SWITCHML_ECONFIG,
                    "SWITCHML_TLS_CERT needs SWITCHML_TLS_CA, the authority of the switch's certificate");
}

Settings resolve_settings(const switchml_config &given, const Environment &environment, bool needs_controller,
                          std::uint32_t default_window) {
    const switchml_config config = widen(given);
    const auto resolve = [&](std::uint32_t value, const Range &range) { return number(value, range, environment); };
    Settings settings;
    settings.rank = config.rank;
    settings.num_workers = config.num_workers;
    if (config.is_cancelled != nullptr) {
        settings.is_cancelled = [ask = config.is_cancelled, user = config.is_cancelled_user] { return ask(user) != 0; };
    }
    check_workers(settings);
    resolve_controller(config, environment, needs_controller, settings);
    resolve_local_address(config, environment, settings);
    settings.worker_port = static_cast<std::uint16_t>(
        resolve(config.worker_port, {"worker_port", "SWITCHML_WORKER_PORT", 4000, 1, 65535}));
    settings.num_threads = resolve(config.num_threads, {"num_threads", "SWITCHML_NUM_THREADS", 1, 1, kMaxThreads});
    const std::uint32_t per_thread = (default_window + settings.num_threads - 1) / settings.num_threads;
    settings.max_outstanding_packets =
        resolve(config.max_outstanding_packets, {"max_outstanding_packets", "SWITCHML_MAX_OUTSTANDING_PACKETS",
                                                 per_thread * settings.num_threads, 1, kMaxOutstanding});
    settings.packet_numel = resolve(config.packet_numel, {"packet_numel", "SWITCHML_PACKET_NUMEL", 256, 64, 256});
    if (settings.packet_numel != 64 && settings.packet_numel != 256) {
        throw Error(config.packet_numel != 0 ? SWITCHML_EINVAL : SWITCHML_ECONFIG,
                    "packet_numel (SWITCHML_PACKET_NUMEL) is " + std::to_string(settings.packet_numel) +
                        ", expected 64 or 256: switches drop the other sizes");
    }
    settings.retransmit_timeout_us =
        resolve(config.retransmit_timeout_us,
                {"retransmit_timeout_us", "SWITCHML_RETRANSMIT_TIMEOUT_US", 10000, 100, 60000000});
    settings.connect_timeout_ms = resolve(
        config.connect_timeout_ms, {"connect_timeout_ms", "SWITCHML_CONNECT_TIMEOUT_MS", 3000, 1, kMaxTimeoutMs});
    settings.job_timeout_ms =
        resolve(config.job_timeout_ms, {"job_timeout_ms", "SWITCHML_JOB_TIMEOUT_MS", 30000, 1, kMaxTimeoutMs});
    settings.segment_offload = resolve_switch("SWITCHML_SEGMENT_OFFLOAD", environment);
    resolve_job_name(config, environment, settings);
    resolve_access(environment, settings);
    check_threads(settings);
    return settings;
}

}  // namespace switchml
