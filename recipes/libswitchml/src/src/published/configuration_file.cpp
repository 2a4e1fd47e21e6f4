// SPDX-License-Identifier: BSD-3-Clause
#include "published/configuration_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "error.hpp"

namespace switchml::published {
namespace {

struct Key {
    const char *name;
    const char *variable;  // nullptr: there is none
};

// All keys of the published library, whichever backend is built in, so that one file serves all transports.
constexpr std::array kKeys{
    Key{"general.rank", nullptr},
    Key{"general.num_workers", nullptr},
    Key{"general.num_worker_threads", "SWITCHML_NUM_THREADS"},
    Key{"general.max_outstanding_packets", "SWITCHML_MAX_OUTSTANDING_PACKETS"},
    Key{"general.packet_numel", "SWITCHML_PACKET_NUMEL"},
    Key{"general.backend", nullptr},
    Key{"general.scheduler", nullptr},
    Key{"general.prepostprocessor", nullptr},
    Key{"general.instant_job_completion", nullptr},
    Key{"general.controller_ip", nullptr},
    Key{"general.controller_port", nullptr},
    Key{"general.timeout", nullptr},
    Key{"general.timeout_threshold", nullptr},
    Key{"general.timeout_threshold_increment", nullptr},
    Key{"backend.dummy.bandwidth", nullptr},
    Key{"backend.dummy.process_packets", nullptr},
    Key{"backend.dpdk.worker_port", "SWITCHML_WORKER_PORT"},
    Key{"backend.dpdk.worker_ip", "SWITCHML_LOCAL_ADDRESS"},
    Key{"backend.dpdk.cores", "SWITCHML_DPDK_CORES"},
    Key{"backend.dpdk.extra_eal_options", "SWITCHML_DPDK_EAL_OPTIONS"},
    Key{"backend.dpdk.port_id", "SWITCHML_DPDK_PORT"},
    Key{"backend.dpdk.pool_size", nullptr},
    Key{"backend.dpdk.pool_cache_size", nullptr},
    Key{"backend.dpdk.burst_rx", nullptr},
    Key{"backend.dpdk.burst_tx", nullptr},
    Key{"backend.dpdk.bulk_drain_tx_us", nullptr},
    Key{"backend.rdma.msg_numel", "SWITCHML_RDMA_MESSAGE_NUMEL"},
    Key{"backend.rdma.device_name", "SWITCHML_RDMA_DEVICE"},
    Key{"backend.rdma.device_port_id", "SWITCHML_RDMA_PORT"},
    Key{"backend.rdma.gid_index", "SWITCHML_RDMA_GID_INDEX"},
};

std::string trimmed(const std::string &text) {
    constexpr const char *kBlank = " \t\r\n";
    const std::size_t begin = text.find_first_not_of(kBlank);
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

const Key *find_key(const std::string &name) {
    const auto *found = std::find_if(kKeys.begin(), kKeys.end(), [&](const Key &key) { return name == key.name; });
    return found == kKeys.end() ? nullptr : found;
}

// The file has milliseconds, with a fraction if need be; what is no number is left for the reader to refuse.
std::optional<std::string> microseconds(const std::optional<std::string> &written) {
    if (!written) return std::nullopt;
    char *end = nullptr;
    const double value = std::strtod(written->c_str(), &end);
    if (*end != '\0' || !(value >= 0 && value < 1e6)) return written;
    return std::to_string(std::llround(value * 1000));
}

std::string where(const char *key, const std::string &path) {
    const Key *known = find_key(key);
    const std::string in_file = std::string(key) + (path.empty() ? "" : " in " + path);
    return known->variable == nullptr ? in_file : std::string(known->variable) + " (" + in_file + ")";
}

}  // namespace

ConfigurationFile::ConfigurationFile(const std::string &path) {
    std::ifstream stream(path);
    if (stream) *this = ConfigurationFile(stream, path);
    if (!stream.is_open() || stream.bad())  // the latter of a folder
        throw Error(SWITCHML_ECONFIG, "cannot read the configuration file '" + path + "' (SWITCHML_CONFIG)");
}

// Lines are "[SECTION]", which comes before the keys that follow, or "KEY = VALUE"; a # begins a comment.
ConfigurationFile::ConfigurationFile(std::istream &text, const std::string &path) : path_(path) {
    std::string section;
    std::string line;
    for (std::size_t number = 1; std::getline(text, line); ++number) {
        const std::string words = trimmed(line.substr(0, line.find('#')));
        if (words.empty()) continue;
        const std::string place = path + ":" + std::to_string(number) + ": ";
        const std::size_t equals = words.find('=');
        if (words.front() == '[' && words.back() == ']') {
            section = trimmed(words.substr(1, words.size() - 2)) + ".";
        } else if (equals == std::string::npos) {
            throw Error(SWITCHML_ECONFIG, place + "'" + words + "', expected [SECTION] or KEY = VALUE");
        } else {
            const std::string key = section + trimmed(words.substr(0, equals));
            if (!values_.emplace(key, trimmed(words.substr(equals + 1))).second)
                throw Error(SWITCHML_ECONFIG, place + key + " is set above as well");
        }
    }
    check();
}

// What would change the meaning of an allreduce is refused rather than passed over.
void ConfigurationFile::check() const {
    for (const auto &[name, value] : values_) {
        if (find_key(name) == nullptr) throw Error(SWITCHML_ECONFIG, path_ + ": unknown key '" + name + "'");
    }
    const std::vector<std::pair<std::string, std::string>> fixed{{"general.backend", backend_name()},
                                                                 {"general.scheduler", "fifo"},
                                                                 {"general.prepostprocessor", "cpu_exponent_quantizer"},
                                                                 {"general.instant_job_completion", "false"}};
    for (const auto &[name, wanted] : fixed) {
        const auto found = values_.find(name);
        if (found == values_.end() || found->second == wanted) continue;
        throw Error(SWITCHML_ECONFIG, path_ + ": " + name + " is '" + found->second +
                                          "', this build of libswitchml has '" + wanted + "' only");
    }
}

Environment ConfigurationFile::beneath(Environment environment) const {
    return [values = values_, environment = std::move(environment)](const char *name) -> std::optional<std::string> {
        if (auto text = environment(name)) return text;
        const auto value_of = [&](const char *key) -> std::optional<std::string> {
            const auto found = values.find(key);
            if (found == values.end() || found->second.empty()) return std::nullopt;
            return found->second;
        };
        const std::string variable = name;
        if (variable == "SWITCHML_CONTROLLER") {
            auto host = value_of("general.controller_ip");
            if (const auto port = value_of("general.controller_port"); host && port) *host += ":" + *port;
            return host;
        }
        if (variable == "SWITCHML_RETRANSMIT_TIMEOUT_US") return microseconds(value_of("general.timeout"));
        for (const Key &key : kKeys) {
            if (key.variable != nullptr && variable == key.variable) return value_of(key.name);
        }
        return std::nullopt;
    };
}

std::string ConfigurationFile::text(const Environment &environment, const char *key,
                                    const std::string &fallback) const {
    if (const char *variable = find_key(key)->variable) {
        if (const auto value = environment(variable)) return *value;
    }
    const auto found = values_.find(key);
    return found == values_.end() ? fallback : found->second;
}

std::uint32_t ConfigurationFile::number(const Environment &environment, const char *key, std::uint32_t fallback,
                                        std::uint32_t high) const {
    const std::string written = text(environment, key, std::to_string(fallback));
    std::uint32_t value = 0;
    const char *end = written.data() + written.size();
    const auto [stop, error] = std::from_chars(written.data(), end, value);
    if (error == std::errc{} && stop == end && value <= high) return value;
    throw Error(SWITCHML_ECONFIG,
                where(key, path_) + " is '" + written + "', expected a whole number up to " + std::to_string(high));
}

double ConfigurationFile::decimal(const Environment &environment, const char *key, double fallback) const {
    const std::string written = text(environment, key, std::to_string(fallback));
    try {
        std::size_t used = 0;
        const double value = std::stod(written, &used);
        if (used == written.size() && std::isfinite(value) && value >= 0) return value;
    } catch (const std::exception &) {
        // said below
    }
    throw Error(SWITCHML_ECONFIG, where(key, path_) + " is '" + written + "', expected a number of at least 0");
}

bool ConfigurationFile::boolean(const Environment &environment, const char *key, bool fallback) const {
    const std::string written = text(environment, key, fallback ? "true" : "false");
    if (written == "true" || written == "1") return true;
    if (written == "false" || written == "0") return false;
    throw Error(SWITCHML_ECONFIG, where(key, path_) + " is '" + written + "', expected true or false");
}

}  // namespace switchml::published
