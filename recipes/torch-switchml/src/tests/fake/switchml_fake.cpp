// SPDX-License-Identifier: BSD-3-Clause
//
// A stand-in for libswitchml.so.1 with the same C ABI and no switch: rank 0
// runs a hub on the controller's address that adds up what the workers send it
// over TCP. Faults are asked for per process, by environment variable:
//   SWITCHML_FAKE_ABI=N         the ABI version it claims
//   SWITCHML_FAKE_FAIL_OPEN=M   switchml_open fails with message M
//   SWITCHML_FAKE_OPEN_DELAY_MS=N  switchml_open begins so much later
//   SWITCHML_FAKE_FAIL_JOB=N    the job number N (from 0) of this worker fails
// Like the real thing, a job whose peers do not take part ends by timeout.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <switchml.h>

#include "hub.h"

namespace {

using switchml_fake::Header;
using switchml_fake::Hub;
using switchml_fake::Socket;
using Clock = std::chrono::steady_clock;

thread_local std::string t_last_error;

switchml_status failed(switchml_status status, const std::string &message) {
    t_last_error = message;
    return status;
}

size_t hand_out(const std::string &made, char *text, size_t size) {
    std::snprintf(text, size, "%s", made.c_str());
    return made.size();
}

uint32_t setting(uint32_t given, const char *name, uint32_t fallback) {
    if (given != 0) {
        return given;
    }
    const char *const text = std::getenv(name);
    return text != nullptr && *text != '\0' ? static_cast<uint32_t>(std::atoi(text)) : fallback;
}

struct Job {
    const void *in;
    void *out;
    uint64_t numel;
    switchml_dtype dtype;
    switchml_callback callback;
    void *user;
};

}  // namespace

struct switchml_context {
    uint32_t rank = 0;
    uint32_t job_timeout_ms = 0;
    long fail_job = -1;
    std::unique_ptr<Hub> hub;
    std::unique_ptr<Socket> socket;
    std::thread thread;

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> jobs;
    bool aborted = false;
    bool broken = false;
    bool closing = false;
    switchml_stats stats{};

    void run() {
        std::unique_lock<std::mutex> lock(mutex);
        while (true) {
            changed.wait(lock, [this] { return closing || !jobs.empty(); });
            if (jobs.empty()) {
                return;
            }
            const Job job = jobs.front();
            jobs.pop_front();
            lock.unlock();
            std::string message;
            const switchml_status status = carry(job, message);
            lock.lock();
            if (status == SWITCHML_OK) {
                ++stats.jobs_completed;
                stats.elements_reduced += job.numel;
            } else {
                ++stats.jobs_failed;
                broken = true;
            }
            lock.unlock();
            job.callback(job.user, status, message.c_str());
            lock.lock();
        }
    }

    switchml_status carry(const Job &job, std::string &message) {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            if (aborted) {
                message = "the session was aborted";
                return SWITCHML_EABORTED;
            }
            if (broken) {
                message = "an earlier job failed";
                return SWITCHML_EABORTED;
            }
        }
        if (fail_job == static_cast<long>(stats.jobs_completed)) {
            message = "injected fault";
            return SWITCHML_EIO;
        }
        const Header header{job.numel, static_cast<uint32_t>(job.dtype), rank};
        Header answer{};
        if (socket->write(&header, sizeof(header)) && socket->write(job.in, job.numel * 4) &&
            socket->read(&answer, sizeof(answer)) && socket->read(job.out, job.numel * 4)) {
            return SWITCHML_OK;
        }
        const std::lock_guard<std::mutex> lock(mutex);
        if (aborted) {
            message = "the session was aborted";
            return SWITCHML_EABORTED;
        }
        message = "no progress for " + std::to_string(job_timeout_ms) + " ms";
        return SWITCHML_ETIMEDOUT;
    }
};

namespace {

std::optional<sockaddr_in> parse_controller(const std::string &text) {
    const size_t colon = text.find(':');
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port =
        htons(static_cast<uint16_t>(colon == std::string::npos ? 50099 : std::atoi(text.c_str() + colon + 1)));
    if (inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1) {
        return std::nullopt;
    }
    return address;
}

std::unique_ptr<Hub> start_hub(const sockaddr_in &address, uint32_t workers) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) != 0 || listen(fd, 32) != 0) {
        ::close(fd);
        return nullptr;
    }
    return std::make_unique<Hub>(fd, workers);
}

// As often as this it is asked whether the opening is cancelled.
constexpr std::chrono::milliseconds kGlance(20);

bool cancelled(const switchml_config &config) {
    return config.is_cancelled != nullptr && config.is_cancelled(config.is_cancelled_user) != 0;
}

switchml_status fail_cancelled() { return failed(SWITCHML_EABORTED, "the opening was cancelled"); }

void delay_opening(const switchml_config &config) {
    const char *const delay = std::getenv("SWITCHML_FAKE_OPEN_DELAY_MS");
    const auto until = Clock::now() + std::chrono::milliseconds(delay != nullptr ? std::atoi(delay) : 0);
    while (Clock::now() < until && !cancelled(config)) {
        std::this_thread::sleep_for(kGlance);
    }
}

bool all_workers_came(const Socket &hub, uint32_t timeout_ms, const switchml_config &config) {
    const auto until = Clock::now() + std::chrono::milliseconds(timeout_ms);
    char welcome = 0;
    while (Clock::now() < until && !cancelled(config)) {
        if (hub.readable_within(kGlance)) {
            return hub.read(&welcome, 1);
        }
    }
    return false;
}

std::unique_ptr<Socket> connect_to_hub(const sockaddr_in &address, Clock::time_point deadline,
                                       const switchml_config &config) {
    while (Clock::now() < deadline && !cancelled(config)) {
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) == 0) {
            return std::make_unique<Socket>(fd);
        }
        ::close(fd);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return nullptr;
}

}  // namespace

extern "C" {

uint32_t switchml_abi_version(void) {
    const char *const text = std::getenv("SWITCHML_FAKE_ABI");
    return text != nullptr ? static_cast<uint32_t>(std::atoi(text)) : SWITCHML_ABI_VERSION;
}

const char *switchml_transport(void) { return "fake"; }

const char *switchml_version(void) { return "1.1.0"; }

const char *switchml_strerror(switchml_status status) {
    switch (status) {
        case SWITCHML_OK: return "success";
        case SWITCHML_ECONFIG: return "bad configuration";
        case SWITCHML_EUNREACHABLE: return "the controller did not answer";
        case SWITCHML_ETIMEDOUT: return "the job timed out";
        case SWITCHML_EABORTED: return "the job was aborted";
        case SWITCHML_EIO: return "input or output error";
        default: return "error";
    }
}

const char *switchml_last_error(void) { return t_last_error.c_str(); }

switchml_status switchml_open(const switchml_config *config, switchml_context **context) {
    *context = nullptr;
    if (const char *const message = std::getenv("SWITCHML_FAKE_FAIL_OPEN")) {
        return failed(SWITCHML_EREFUSED, message);
    }
    delay_opening(*config);
    if (cancelled(*config)) {
        return fail_cancelled();
    }
    const char *const named = config->controller != nullptr ? config->controller : std::getenv("SWITCHML_CONTROLLER");
    const auto address = parse_controller(named != nullptr ? named : "");
    if (!address) {
        return failed(SWITCHML_ECONFIG, "SWITCHML_CONTROLLER is no IPv4 address and port");
    }
    const uint32_t connect_ms = setting(config->connect_timeout_ms, "SWITCHML_CONNECT_TIMEOUT_MS", 3000);
    auto opened = std::make_unique<switchml_context>();
    opened->rank = config->rank;
    opened->job_timeout_ms = setting(config->job_timeout_ms, "SWITCHML_JOB_TIMEOUT_MS", 30000);
    if (const char *const text = std::getenv("SWITCHML_FAKE_FAIL_JOB")) {
        opened->fail_job = std::atol(text);
    }
    if (config->rank == 0) {
        opened->hub = start_hub(*address, config->num_workers);
        if (!opened->hub) {
            return failed(SWITCHML_EIO, "the hub's address is taken");
        }
    }
    opened->socket = connect_to_hub(*address, Clock::now() + std::chrono::milliseconds(connect_ms), *config);
    if (!opened->socket) {
        return cancelled(*config)
                   ? fail_cancelled()
                   : failed(SWITCHML_EUNREACHABLE, "no answer within " + std::to_string(connect_ms) + " ms");
    }
    opened->socket->set_timeout(opened->job_timeout_ms);
    if (!all_workers_came(*opened->socket, opened->job_timeout_ms, *config)) {
        return cancelled(*config) ? fail_cancelled() : failed(SWITCHML_ETIMEDOUT, "not all workers came");
    }
    switchml_context *const raw = opened.release();
    raw->thread = std::thread([raw] { raw->run(); });
    *context = raw;
    return SWITCHML_OK;
}

switchml_status switchml_allreduce_submit(switchml_context *context, const void *in, void *out, uint64_t numel,
                                          switchml_dtype dtype, switchml_callback callback, void *user) {
    if (in == nullptr || out == nullptr) {
        return failed(SWITCHML_EINVAL, "a buffer is null");
    }
    const std::lock_guard<std::mutex> lock(context->mutex);
    if (context->aborted || context->broken) {
        return failed(SWITCHML_EABORTED, "the context accepts no more jobs");
    }
    context->jobs.push_back({in, out, numel, dtype, callback, user});
    ++context->stats.jobs_submitted;
    context->changed.notify_all();
    return SWITCHML_OK;
}

switchml_status switchml_abort(switchml_context *context) {
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->aborted = true;
    context->socket->wake();
    return SWITCHML_OK;
}

switchml_status switchml_get_stats(const switchml_context *context, switchml_stats *stats) {
    auto *const self = const_cast<switchml_context *>(context);
    const std::lock_guard<std::mutex> lock(self->mutex);
    const size_t size = stats->struct_size;
    *stats = self->stats;
    stats->struct_size = size;
    return SWITCHML_OK;
}

switchml_status switchml_resolve(const switchml_config *config, switchml_config *resolved) {
    if (setting(0, "SWITCHML_JOB_TIMEOUT_MS", 30000) == 0) {
        return failed(SWITCHML_ECONFIG, std::string("SWITCHML_JOB_TIMEOUT_MS='") +
                                            std::getenv("SWITCHML_JOB_TIMEOUT_MS") + "', expected a number");
    }
    *resolved = *config;
    resolved->connect_timeout_ms = setting(config->connect_timeout_ms, "SWITCHML_CONNECT_TIMEOUT_MS", 3000);
    resolved->job_timeout_ms = setting(config->job_timeout_ms, "SWITCHML_JOB_TIMEOUT_MS", 30000);
    resolved->worker_port = setting(config->worker_port, "SWITCHML_WORKER_PORT", 4000);
    resolved->num_threads = setting(config->num_threads, "SWITCHML_NUM_THREADS", 1);
    resolved->packet_numel = setting(config->packet_numel, "SWITCHML_PACKET_NUMEL", 256);
    return SWITCHML_OK;
}

size_t switchml_common_settings(const switchml_config *resolved, char *text, size_t size) {
    return hand_out(
        "the transport of libswitchml\tfake\nSWITCHML_PACKET_NUMEL\t" + std::to_string(resolved->packet_numel) + "\n",
        text, size);
}

// Errors alone: it is not asked about differences.
size_t switchml_compare_reports(const char *const *reports, uint32_t num_workers, uint32_t, char *text, size_t size) {
    std::string found;
    for (uint32_t rank = 0; rank < num_workers; ++rank) {
        const std::string report = reports[rank] != nullptr ? reports[rank] : "did not report";
        const std::string error = report.substr(0, report.find('\n'));
        if (!error.empty()) {
            found += (found.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + error;
        }
    }
    return hand_out(found, text, size);
}

size_t switchml_describe_library(char *text, size_t size) {
    Dl_info info{};
    dladdr(reinterpret_cast<const void *>(&switchml_version), &info);
    return hand_out(std::string("{\"path\": \"") + info.dli_fname +
                        "\", \"version\": \"1.1.0\", \"transport\": \"fake\", \"abi_version\": 1}",
                    text, size);
}

size_t switchml_describe_stats(const switchml_stats *stats, char *text, size_t size) {
    return hand_out("{\"jobs_submitted\": " + std::to_string(stats->jobs_submitted) +
                        ", \"jobs_completed\": " + std::to_string(stats->jobs_completed) +
                        ", \"elements_reduced\": " + std::to_string(stats->elements_reduced) + "}",
                    text, size);
}

void switchml_close(switchml_context *context) {
    if (context == nullptr) {
        return;
    }
    switchml_abort(context);
    {
        const std::lock_guard<std::mutex> lock(context->mutex);
        context->closing = true;
        context->changed.notify_all();
    }
    context->thread.join();
    delete context;
}

}  // extern "C"
