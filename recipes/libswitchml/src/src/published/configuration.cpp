// SPDX-License-Identifier: BSD-3-Clause
#include "published/configuration.hpp"

#include <cstdint>
#include <string>

#include "published/backend.hpp"

namespace switchml::published {

ConfigurationFile find_configuration() {
    const std::string path = Config::FindFile();
    return path.empty() ? ConfigurationFile() : ConfigurationFile(path);
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
