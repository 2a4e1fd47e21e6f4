// SPDX-License-Identifier: BSD-3-Clause
//
// switchml-bench: one worker that reduces, checks the sums and reports as one
// JSON line. Uses the C ABI alone, so it serves every transport.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench_options.hpp"
#include "switchml.h"

using switchml::bench::Options;
using switchml::bench::parse_options;
using switchml::bench::UsageError;

namespace {

constexpr const char *kUsage =
    "usage: switchml-bench --rank R --workers N [--numel N] [--dtype float32|int32] [--iterations N] [--in-place]\n"
    "\n"
    "Runs one worker of an allreduce through the switch that SWITCHML_CONTROLLER names,\n"
    "checks every sum, and prints one JSON line. Start it once per rank; on one host the\n"
    "workers take addresses of their own on loopback by themselves.\n"
    "Exit status: 0 all sums right, 1 the library failed, 2 usage, 3 wrong sums.\n";

class LibraryError : public std::runtime_error {
  public:
    LibraryError(const char *what, switchml_status status, const std::string &why)
        : std::runtime_error(std::string(what) + ": " + switchml_strerror(status) + ": " + why) {}
};

// Deterministic inputs, so that every rank knows every other rank's.
std::int32_t int_input(std::uint32_t rank, std::uint64_t index) {
    const std::uint64_t mixed = (index + 1) * 0x9E3779B97F4A7C15ULL + rank * 0xBF58476D1CE4E5B9ULL;
    return static_cast<std::int32_t>(mixed >> 32);
}

float float_input(std::uint32_t rank, std::uint64_t index) {
    return static_cast<float>(int_input(rank, index)) * 0x1p-31F;  // -1 to 1
}

using Words = std::vector<std::uint32_t>;

template <class T>
void put(Words &words, std::uint64_t index, T value) {
    static_assert(sizeof value == 4);
    std::memcpy(&words[index], &value, 4);
}

Words make_input(const Options &options) {
    Words words(options.numel);
    for (std::uint64_t i = 0; i < options.numel; ++i) {
        if (options.dtype == SWITCHML_INT32)
            put(words, i, int_input(options.rank, i));
        else
            put(words, i, float_input(options.rank, i));
    }
    return words;
}

// The largest error; more than the documented bound, or any for int32, is wrong.
struct Check {
    double largest_error = 0;
    std::uint64_t wrong = 0;
};

Check check(const Options &options, const Words &result) {
    Check outcome;
    const double bound = options.workers * options.workers * 0x1p-32 + options.workers * 0x1p-24;
    for (std::uint64_t i = 0; i < options.numel; ++i) {
        if (options.dtype == SWITCHML_INT32) {
            std::uint32_t sum = 0;
            for (std::uint32_t rank = 0; rank < options.workers; ++rank)
                sum += static_cast<std::uint32_t>(int_input(rank, i));
            outcome.wrong += sum != result[i] ? 1 : 0;
            continue;
        }
        double sum = 0;
        for (std::uint32_t rank = 0; rank < options.workers; ++rank) sum += double{float_input(rank, i)};
        float got = 0;
        std::memcpy(&got, &result[i], 4);
        const double error = std::fabs(got - sum);
        if (!(error <= bound)) ++outcome.wrong;
        outcome.largest_error = std::max(outcome.largest_error, error);
    }
    return outcome;
}

struct Completion {
    std::promise<void> done;
    switchml_status status = SWITCHML_OK;
    std::string message;
};

void complete(void *user, switchml_status status, const char *message) {
    auto *completion = static_cast<Completion *>(user);
    completion->status = status;
    completion->message = message;
    completion->done.set_value();
}

double reduce(switchml_context *context, const Options &options, const Words &in, Words &out) {
    Completion completion;
    const auto start = std::chrono::steady_clock::now();
    const switchml_status status =
        switchml_allreduce_submit(context, in.data(), out.data(), options.numel, options.dtype, complete, &completion);
    if (status != SWITCHML_OK) throw LibraryError("submit", status, switchml_last_error());
    completion.done.get_future().wait();
    if (completion.status != SWITCHML_OK) throw LibraryError("allreduce", completion.status, completion.message);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The most memory that the process has had at a time.
long peak_kib() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

int report(const Options &options, std::vector<double> seconds, const Check &checked, const switchml_stats &stats,
           long first_peak_kib) {
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds.empty() ? 0 : seconds[seconds.size() / 2];
    const double megabytes = 4e-6 * static_cast<double>(options.numel);
    std::printf(
        "{\"rank\": %u, \"workers\": %u, \"transport\": \"%s\", \"version\": \"%s\", \"dtype\": \"%s\", \"numel\": "
        "%llu, "
        "\"iterations\": %zu, \"median_s\": %.6f, \"mb_per_s\": %.1f, \"wrong\": %llu, \"largest_error\": %.3g, "
        "\"packets_sent\": %llu, \"packets_received\": %llu, \"packets_retransmitted\": %llu, \"packets_discarded\": "
        "%llu, "
        "\"elements_reduced\": %llu, \"receive_buffer_wanted\": %llu, \"receive_buffer_granted\": %llu, "
        "\"peak_kib_after_first\": %ld, \"peak_kib\": %ld}\n",
        options.rank, options.workers, switchml_transport(), switchml_version(),
        options.dtype == SWITCHML_INT32 ? "int32" : "float32", static_cast<unsigned long long>(options.numel),
        seconds.size(), median, median > 0 ? megabytes / median : 0.0, static_cast<unsigned long long>(checked.wrong),
        checked.largest_error, static_cast<unsigned long long>(stats.packets_sent),
        static_cast<unsigned long long>(stats.packets_received),
        static_cast<unsigned long long>(stats.packets_retransmitted),
        static_cast<unsigned long long>(stats.packets_discarded),
        static_cast<unsigned long long>(stats.elements_reduced),
        static_cast<unsigned long long>(stats.receive_buffer_wanted),
        static_cast<unsigned long long>(stats.receive_buffer_granted), first_peak_kib, peak_kib());
    return checked.wrong == 0 ? 0 : 3;
}

int run(const Options &options) {
    switchml_config config{};
    config.struct_size = sizeof config;
    config.rank = options.rank;
    config.num_workers = options.workers;
    switchml_context *context = nullptr;
    const switchml_status status = switchml_open(&config, &context);
    if (status != SWITCHML_OK) throw LibraryError("open", status, switchml_last_error());
    const struct Closer {
        switchml_context *context;
        ~Closer() { switchml_close(context); }
    } closer{context};

    const Words input = make_input(options);
    std::vector<double> seconds;
    seconds.reserve(options.iterations);
    Check checked;
    long first_peak_kib = 0;
    Words buffer(options.numel);
    for (std::uint32_t i = 0; i < options.iterations; ++i) {
        if (options.in_place)
            buffer = input;
        else
            std::fill(buffer.begin(), buffer.end(), 0xFFFFFFFFU);
        seconds.push_back(reduce(context, options, options.in_place ? buffer : input, buffer));
        const Check once = check(options, buffer);
        checked.wrong += once.wrong;
        checked.largest_error = std::max(checked.largest_error, once.largest_error);
        if (i == 0) first_peak_kib = peak_kib();
    }
    switchml_stats stats{};
    stats.struct_size = sizeof stats;
    switchml_get_stats(context, &stats);
    return report(options, seconds, checked, stats, first_peak_kib);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
        std::fputs(kUsage, stdout);
        return 0;
    }
    if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
        std::printf("switchml-bench %s (%s)\n", switchml_version(), switchml_transport());
        return 0;
    }
    try {
        return run(parse_options(argc, argv));
    } catch (const UsageError &error) {
        std::fprintf(stderr, "switchml-bench: %s\n\n%s", error.what(), kUsage);
        return 2;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "switchml-bench: %s\n", error.what());
        return 1;
    }
}
