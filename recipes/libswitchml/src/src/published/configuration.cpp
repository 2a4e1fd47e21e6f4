// SPDX-License-Identifier: BSD-3-Clause
#include "published/configuration.hpp"

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "error.hpp"
#include "published/backend.hpp"

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

ConfigurationFile ConfigurationFile::find() {
    const std::string path = Config::FindFile();
    return path.empty() ? ConfigurationFile() : ConfigurationFile(path);
}

ConfigurationFile::ConfigurationFile(const std::string &path) : path_(path) {
    std::ifstream stream(path);
    if (!stream) throw Error(SWITCHML_ECONFIG, "cannot read the configuration file '" + path + "' (SWITCHML_CONFIG)");
    namespace po = boost::program_options;
    try {
        const auto parsed = po::parse_config_file<char>(stream, po::options_description(), true);
        for (const auto &option : parsed.options)
            values_[option.string_key] = option.value.empty() ? "" : option.value.front();
    } catch (const po::error &error) {
        throw Error(SWITCHML_ECONFIG, path + ": " + error.what());
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

Config make_config(const Settings &settings, const ConfigurationFile &file, const Environment &environment) {
    Config config{};
    GeneralConfig &general = config.general_;
    general.rank = static_cast<std::uint16_t>(settings.rank);
    general.num_workers = static_cast<std::uint16_t>(settings.num_workers);
    general.num_worker_threads = static_cast<std::uint16_t>(settings.num_threads);
    general.max_outstanding_packets = settings.max_outstanding_packets;
    general.packet_numel = settings.packet_numel;
    general.backend = backend_name();
    general.scheduler = "fifo";
    general.prepostprocessor = "cpu_exponent_quantizer";
    general.instant_job_completion = false;
    general.controller_ip_str = settings.controller_host;
    general.controller_port = settings.controller_port;
    general.connect_timeout_ms = settings.connect_timeout_ms;
    general.job_timeout_ms = settings.job_timeout_ms;
    general.job_name = settings.job_name;
    general.timeout = settings.retransmit_timeout_us / 1000.0;
    general.timeout_threshold = file.number(environment, "general.timeout_threshold", 100, UINT32_MAX);
    general.timeout_threshold_increment =
        file.number(environment, "general.timeout_threshold_increment", 100, UINT32_MAX);
    configure_backend(settings, file, environment, config);
    return config;
}

}  // namespace switchml::published
