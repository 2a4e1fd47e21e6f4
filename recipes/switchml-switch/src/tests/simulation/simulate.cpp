// SPDX-License-Identifier: BSD-3-Clause
//
// Runs schedules and says which promise one breaks, if any.
//
//   simulate --schedules N [--first SEED] [--threads N] [--weakness NAME]
//   simulate --seed SEED [--weakness NAME]
//
// Exit status: 0 nothing broken, 1 a promise broken, 2 usage.
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "simulation.hpp"

using namespace switchml::simulation;

namespace {

struct Options {
    std::uint64_t first = 1;
    std::uint64_t schedules = 1;
    std::uint64_t threads = 1;
    std::string weakness;  // as on the command line
};

std::optional<std::uint64_t> number_in(const char *text) {
    std::uint64_t number = 0;
    const char *end = text + std::strlen(text);
    const auto [stopped, error] = std::from_chars(text, end, number);
    if (error != std::errc() || stopped != end || text == end) return std::nullopt;
    return number;
}

std::optional<Weakness> weakness_named(const std::string &name) {
    if (name.empty()) return Weakness::kNone;
    if (name == "published-rules") return Weakness::kPublishedRules;
    if (name == "stale-results") return Weakness::kStaleResults;
    return std::nullopt;
}

std::optional<Options> parse(int argc, char **argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i];
        if (i + 1 == argc) return std::nullopt;
        if (name == "--weakness") {
            options.weakness = argv[i + 1];
            if (options.weakness.empty() || !weakness_named(options.weakness)) return std::nullopt;
            continue;
        }
        const auto number = number_in(argv[i + 1]);
        if (!number) return std::nullopt;
        if (name == "--seed" || name == "--first")
            options.first = *number;
        else if (name == "--schedules")
            options.schedules = *number;
        else if (name == "--threads" && *number >= 1 && *number <= 1024)
            options.threads = *number;
        else
            return std::nullopt;
    }
    return options;
}

void print(const char *what, std::uint64_t count) {
    std::printf("%-52s %llu\n", what, static_cast<unsigned long long>(count));
}

void print(const Totals &totals) {
    print("schedules", totals.schedules);
    print("sessions", totals.groups.sessions);
    print("results on a rank, exact", totals.groups.reduced - totals.groups.wrong_by_altered);
    print("results on a rank, reported as failed", totals.groups.failed);
    print("packets", totals.network.packets);
    print("packets lost", totals.network.lost);
    print("packets that came twice", totals.network.repeated);
    print("packets delayed", totals.network.delayed);
    print("packets corrupted", totals.network.corrupted);
    print("  that pass the UDP checksum", totals.network.altered);
    print("  and arrived with a changed header", totals.network.altered_headers);
    print("  and were taken nevertheless", totals.network.altered_headers_taken);
    print("wrong results because of what passes the checksum", totals.groups.wrong_by_altered);
    print("workers killed", totals.groups.kills);
    print("switches started again", totals.switch_restarts);
    print("most packets under way at once", totals.most_in_flight);
}

// Everything that it takes to see the same again.
void explain(std::uint64_t seed, const Options &options, const std::string &violation) {
    const Weakness weakness = *weakness_named(options.weakness);
    std::printf("BROKEN  seed %llu: %s\n", static_cast<unsigned long long>(seed), violation.c_str());
    const std::string suffix = options.weakness.empty() ? "" : " --weakness " + options.weakness;
    std::printf("        again: simulate --seed %llu%s\n", static_cast<unsigned long long>(seed), suffix.c_str());
    const Plan plan = make_plan(seed);
    const Outcome least = simulate(plan, weakness, minimise(plan, weakness));
    std::printf("        with these %zu faults alone: %s\n", least.faults.size(), least.violation->c_str());
    for (const Fault &fault : least.faults)
        std::printf("        %10.3f ms  %s\n", static_cast<double>(fault.at_ns) / kMs, fault.what.c_str());
}

// The first seed that breaks a promise, in no particular order with several threads.
std::optional<std::uint64_t> search(const Options &options, Totals &totals, std::string &violation) {
    std::atomic<std::uint64_t> next{0};
    std::mutex mutex;
    std::optional<std::uint64_t> broken;
    const auto work = [&] {
        Totals own;
        for (std::uint64_t i = next++; i < options.schedules; i = next++) {
            const Outcome outcome = simulate(make_plan(options.first + i), *weakness_named(options.weakness));
            own.add(outcome.totals);
            if (!outcome.violation) continue;
            next = options.schedules;
            const std::lock_guard lock(mutex);
            broken = options.first + i;
            violation = *outcome.violation;
        }
        const std::lock_guard lock(mutex);
        totals.add(own);
    };
    std::vector<std::thread> threads;
    for (std::uint64_t i = 1; i < options.threads; ++i) threads.emplace_back(work);
    work();
    for (std::thread &thread : threads) thread.join();
    return broken;
}

}  // namespace

int main(int argc, char **argv) {
    const auto options = parse(argc, argv);
    if (!options) {
        std::fprintf(stderr,
                     "usage: simulate [--seed N | --first N --schedules N] [--threads N] "
                     "[--weakness published-rules|stale-results]\n");
        return 2;
    }
    Totals totals;
    std::string violation;
    const auto broken = search(*options, totals, violation);
    if (broken) explain(*broken, *options, violation);
    print(totals);
    return broken ? 1 : 0;
}
