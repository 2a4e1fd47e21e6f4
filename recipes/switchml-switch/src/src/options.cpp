// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <charconv>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>

namespace switchml::softswitch {

const char *const kUsage =
    "usage: switchml-switch --address IP [options]\n"
    "\n"
    "A SwitchML switch in software: workers open sessions with it over gRPC and it\n"
    "sums their packets over UDP.\n"
    "\n"
    "  --address IP            this host's address, to bind and to tell the workers\n"
    "  --port N                UDP port of the data plane, 0 for a free one (default 48864;\n"
    "                          libswitchml learns it, published clients know only the default)\n"
    "  --controller-port N     TCP port of the session set-up, 0 for a free one (default 50099)\n"
    "  --max-workers N         workers in a session, 1 to 32 (default 32)\n"
    "  --max-sessions N        jobs that may use the switch at the same time, 1 to 64, each with\n"
    "                          slots of its own (default 8)\n"
    "  --lease-ms N            how long a worker may be silent until it counts as gone, which\n"
    "                          fails the others' jobs, and a session without a sign of its\n"
    "                          workers stands when another wants its place (default 20000)\n"
    "  --stats-file PATH       counters as JSON, replaced at each session, every second\n"
    "                          while there is traffic, and at the end\n"
    "  --metrics-file PATH     counters and sessions for Prometheus, a file PATH.prom in a folder\n"
    "                          of its node exporter (--collector.textfile.directory), replaced\n"
    "                          every five seconds and removed at the end\n"
    "  --token-file PATH       ask every call of the controller for one of the tokens in this\n"
    "                          file, one a line\n"
    "  --tls-cert PATH         speak TLS on the controller's port, with this certificate\n"
    "  --tls-key PATH          and its key, both PEM\n"
    "  --tls-client-ca PATH    ask clients for a certificate that one of these signed, PEM\n"
    "  --drop-rate P           drop received packets with this probability, for tests\n"
    "  --drop-result-rate P    drop results with this probability, per worker, for tests\n"
    "  --duplicate-rate P      let packets and results come twice with this probability, for tests\n"
    "  --delay-rate P          delay packets and results with this probability, for tests\n"
    "  --delay-ms N            by up to this time, 1 to 10000 (default 10)\n"
    "  --reorder-rate P        let packets and results be overtaken with this probability, for tests\n"
    "  --seed N                seed of all these (default 0)\n"
    "  --version               print the version\n"
    "  --help                  print this\n"
    "\n"
    "Prints one JSON line on standard output when ready and one when stopped by SIGTERM\n"
    "or SIGINT. Exit status: 0 stopped, 1 could not run, 2 usage.\n";

namespace {

std::uint64_t number(const std::string &option, const std::string &text, std::uint64_t low, std::uint64_t high) {
    std::uint64_t value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || value < low || value > high) {
        throw UsageError(option + " is '" + text + "', expected a whole number from " + std::to_string(low) + " to " +
                         std::to_string(high));
    }
    return value;
}

double probability(const std::string &option, const std::string &text) {
    char *end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(value >= 0 && value < 1)) {
        throw UsageError(option + " is '" + text + "', expected a probability of at least 0 and below 1");
    }
    return value;
}

void set_address(Options &options, const std::string &text) {
    const auto address = wire::IpAddress::parse(text);
    if (!address || address->is_unspecified()) {
        throw UsageError("--address is '" + text +
                         "', expected one of this host's IPv4 or IPv6 addresses (workers are told it)");
    }
    options.address = *address;
}

void set_metrics_file(Options &options, const std::string &text) {
    static const std::string suffix = ".prom";
    const std::size_t slash = text.rfind('/');
    const std::string name = slash == std::string::npos ? text : text.substr(slash + 1);
    if (name.size() <= suffix.size() || name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
        throw UsageError("--metrics-file is '" + text +
                         "', expected a name that ends in .prom: node exporter reads no others");
    }
    options.metrics_file = text;
}

void refuse_metrics(Options &, const std::string &text) {
    throw UsageError("--metrics '" + text +
                     "': the switch serves no HTTP any more; give --metrics-file PATH.prom, in the folder that node "
                     "exporter's --collector.textfile.directory names, and have Prometheus scrape node exporter");
}

using Setter = std::function<void(Options &, const std::string &)>;

const std::map<std::string, Setter> &setters() {
    static const std::map<std::string, Setter> table{
        {"--address", set_address},
        {"--port",
         [](Options &o, const std::string &v) {
             o.data_port = static_cast<std::uint16_t>(number("--port", v, 0, 65535));
         }},
        {"--controller-port",
         [](Options &o, const std::string &v) {
             o.controller_port = static_cast<std::uint16_t>(number("--controller-port", v, 0, 65535));
         }},
        {"--max-workers",
         [](Options &o, const std::string &v) {
             o.max_workers = static_cast<std::uint32_t>(number("--max-workers", v, 1, wire::kMaxWorkers));
         }},
        {"--max-sessions",
         [](Options &o, const std::string &v) {
             o.max_sessions = static_cast<std::uint32_t>(number("--max-sessions", v, 1, 64));
         }},
        {"--lease-ms",
         [](Options &o, const std::string &v) {
             o.lease_ms = static_cast<std::uint32_t>(number("--lease-ms", v, 10, 86400000));
         }},
        {"--stats-file", [](Options &o, const std::string &v) { o.stats_file = v; }},
        {"--metrics-file", set_metrics_file},
        {"--metrics", refuse_metrics},
        {"--token-file", [](Options &o, const std::string &v) { o.token_file = v; }},
        {"--tls-cert", [](Options &o, const std::string &v) { o.tls_cert = v; }},
        {"--tls-key", [](Options &o, const std::string &v) { o.tls_key = v; }},
        {"--tls-client-ca", [](Options &o, const std::string &v) { o.tls_client_ca = v; }},
        {"--drop-rate", [](Options &o, const std::string &v) { o.drop_rate = probability("--drop-rate", v); }},
        {"--drop-result-rate",
         [](Options &o, const std::string &v) { o.drop_result_rate = probability("--drop-result-rate", v); }},
        {"--duplicate-rate",
         [](Options &o, const std::string &v) { o.duplicate_rate = probability("--duplicate-rate", v); }},
        {"--delay-rate", [](Options &o, const std::string &v) { o.delay_rate = probability("--delay-rate", v); }},
        {"--delay-ms",
         [](Options &o, const std::string &v) {
             o.delay_ms = static_cast<std::uint32_t>(number("--delay-ms", v, 1, 10000));
         }},
        {"--reorder-rate", [](Options &o, const std::string &v) { o.reorder_rate = probability("--reorder-rate", v); }},
        {"--seed",
         [](Options &o, const std::string &v) {
             o.seed = number("--seed", v, 0, std::numeric_limits<std::uint64_t>::max());
         }},
    };
    return table;
}

void check_tls(const Options &options) {
    if (options.tls_cert.empty() != options.tls_key.empty())
        throw UsageError("--tls-cert and --tls-key are needed together");
    if (!options.tls_client_ca.empty() && options.tls_cert.empty())
        throw UsageError("--tls-client-ca needs --tls-cert and --tls-key");
}

}  // namespace

Options parse_options(int argc, const char *const *argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        std::string name = argv[i];
        if (name == "--help") {
            options.help = true;
            continue;
        }
        if (name == "--version") {
            options.version = true;
            continue;
        }
        const std::size_t equals = name.find('=');
        std::string value;
        if (equals != std::string::npos) {
            value = name.substr(equals + 1);
            name.resize(equals);
        }
        const auto setter = setters().find(name);
        if (setter == setters().end()) throw UsageError("unknown option '" + name + "'");
        if (equals == std::string::npos) {
            if (++i >= argc) throw UsageError(name + " takes a value");
            value = argv[i];
        }
        setter->second(options, value);
    }
    check_tls(options);
    if (options.address.is_unspecified() && !options.help && !options.version) throw UsageError("--address is needed");
    return options;
}

}  // namespace switchml::softswitch
