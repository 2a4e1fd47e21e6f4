// SPDX-License-Identifier: BSD-3-Clause
//
// switchml-switch: starts the parts, says that they are ready, waits for a signal.
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "controller.hpp"
#include "counters.hpp"
#include "data_plane.hpp"
#include "metrics.hpp"
#include "notify.hpp"
#include "options.hpp"
#include "text_file.hpp"

namespace {

using namespace switchml::softswitch;

// Prometheus asks its node exporter for the file every 15 s or less often.
constexpr std::chrono::seconds kMetricsInterval{5};
constexpr long kWatchIntervalNs = 500L * 1000 * 1000;

void say(const std::string &line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

sigset_t block_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // inherited by every thread started later
    std::signal(SIGPIPE, SIG_IGN);
    return signals;
}

// Of files to the most that the system allows: a gRPC that finds none for a connection (1.51) never accepts another.
void raise_limit() {
    rlimit files{};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);  // what is not granted stays as it was
}

// Returns when a signal has come; throws when the data plane failed.
void wait_for_signal(const sigset_t &signals, DataPlane &plane) {
    const timespec interval{0, kWatchIntervalNs};
    while (sigtimedwait(&signals, nullptr, &interval) < 0) {
        const std::string failure = plane.failure();
        if (!failure.empty()) throw std::runtime_error(failure);
    }
}

std::string ready_line(const Options &options, const DataPlane &plane, const Controller &controller) {
    return "{\"event\": \"ready\", \"controller\": " +
           json_string(switchml::wire::to_text({options.address, controller.port()})) +
           ", \"data\": " + json_string(switchml::wire::to_text(plane.local())) +
           ", \"version\": " + json_string(SWITCHML_VERSION) + "}";
}

// Nothing where it is not asked for, as below.
std::unique_ptr<TextFile> keep_stats(const Options &options, DataPlane &plane) {
    if (options.stats_file.empty()) return nullptr;
    return std::make_unique<TextFile>(TextFileOptions{options.stats_file, "stats file"},
                                      [&plane] { return to_json(plane.counters()) + "\n"; });
}

std::unique_ptr<TextFile> keep_metrics(const Options &options, DataPlane &plane, Controller &controller) {
    if (options.metrics_file.empty()) return nullptr;
    TextFileOptions file{options.metrics_file, "metrics file"};
    file.interval = kMetricsInterval;
    file.also_unchanged = file.readable_by_all = file.removed_at_end = true;
    return std::make_unique<TextFile>(
        std::move(file), [&plane, &controller] { return to_prometheus(plane.counters(), controller.sessions()); });
}

DataPlaneOptions data_plane_options(const Options &options) {
    FaultRates faults{options.drop_rate, options.duplicate_rate, options.delay_rate, options.reorder_rate,
                      std::chrono::milliseconds(options.delay_ms)};
    DataPlaneOptions plane{{options.address, options.data_port}, faults, faults, options.seed};
    plane.result_faults.drop = options.drop_result_rate;
    return plane;
}

void run(const Options &options) {
    const sigset_t signals = block_signals();
    raise_limit();
    DataPlane plane(data_plane_options(options));
    auto stats = keep_stats(options, plane);
    {
        const auto on_session = [&stats] {
            if (stats) stats->refresh();
        };
        Controller controller({{options.address, options.controller_port},
                               options.max_workers,
                               options.max_sessions,
                               std::chrono::milliseconds(options.lease_ms),
                               {options.token_file, options.tls_cert, options.tls_key, options.tls_client_ca},
                               on_session},
                              plane);
        const auto metrics = keep_metrics(options, plane, controller);
        say(ready_line(options, plane, controller));
        notify_service_manager("READY=1");
        wait_for_signal(signals, plane);
        notify_service_manager("STOPPING=1");
    }
    stats.reset();
    say("{\"event\": \"stopped\", \"stats\": " + to_json(plane.counters()) + "}");
}

}  // namespace

int main(int argc, char **argv) {
    try {
        const Options options = parse_options(argc, argv);
        if (options.help) {
            std::fputs(kUsage, stdout);
        } else if (options.version) {
            say("switchml-switch " SWITCHML_VERSION);
        } else {
            run(options);
        }
        return 0;
    } catch (const UsageError &error) {
        std::fprintf(stderr, "switchml-switch: %s\nTry 'switchml-switch --help'.\n", error.what());
        return 2;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "switchml-switch: %s\n", error.what());
        return 1;
    }
}
