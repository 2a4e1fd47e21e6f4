// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLSession.hpp"

#include <errno.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>

#include "SwitchMLAgreement.hpp"
#include "SwitchMLJobs.hpp"
#include "SwitchMLLibrary.hpp"
#include "SwitchMLReport.hpp"
#include "SwitchMLSettings.hpp"

namespace c10d {

namespace {

using std::chrono::milliseconds;
using switchml_detail::Agreement;
using switchml_detail::counters;
using switchml_detail::Jobs;
using switchml_detail::Library;
using switchml_detail::Settings;

// Beyond the library's own limits: ranks come here out of gloo's rendezvous, so they are not far apart.
constexpr int64_t kMarginMs = 5000;

// With the library's defaults, for a rank that cannot read its settings.
constexpr milliseconds kUsualLimit{10000 + 30000 + kMarginMs};

// The session that the report speaks of: the one open, else the last one.
// Never destroyed, because it is read at exit.
struct Current {
    std::mutex mutex;
    std::shared_ptr<Jobs> session;
    std::string statsPath;  // empty: none
    pid_t owner = 0;
};

Current &current() {
    static auto *const instance = new Current();
    return *instance;
}

std::shared_ptr<Jobs> currentSession() {
    const std::lock_guard<std::mutex> lock(current().mutex);
    return current().session;
}

void writeReport() {
    std::string path;
    {
        const std::lock_guard<std::mutex> lock(current().mutex);
        path = current().owner == getpid() ? current().statsPath : "";
    }
    if (!path.empty()) {
        switchml_detail::writeReport(path, SwitchMLSession::report());
    }
}

// A process may end with its group undestroyed: then nobody waits for what is
// under way, and the switch and the other ranks are to know that it has gone.
// The report counts what other groups did since the session's end, too.
void endAtExit() {
    if (const auto session = currentSession()) {
        session->abort();
        session->close();
    }
    writeReport();
}

// What other jobs' ranks do not take for their own, and people recognise in the switch's messages.
std::string makeJobName(const Settings &settings) {
    std::random_device device;
    std::array<char, 16> digits{};
    std::snprintf(digits.data(), digits.size(), "-%08x", device());
    return (settings.jobName.empty() ? std::string(program_invocation_short_name) : settings.jobName) + digits.data();
}

milliseconds openingLimit(const switchml_config &resolved) {
    return milliseconds(int64_t{resolved.connect_timeout_ms} + resolved.job_timeout_ms + kMarginMs);
}

// What `attempt` throws, as a report's error; "" where it throws nothing.
std::string errorOf(const std::function<void()> &attempt) {
    try {
        attempt();
        return "";
    } catch (const std::exception &error) {
        return *error.what() != '\0' ? error.what() : "unknown error";
    }
}

void makeCurrent(const std::shared_ptr<Jobs> &session, const std::string &statsPath) {
    {
        const std::lock_guard<std::mutex> lock(current().mutex);
        current().session = session;
        current().statsPath = statsPath;
        current().owner = getpid();
    }
    session->onClosed(&writeReport);
    static const int atExit = std::atexit(&endAtExit);
    (void)atExit;
}

}  // namespace

bool SwitchMLSession::requested() { return switchml_detail::isRequested(); }

std::shared_ptr<SwitchMLSession> SwitchMLSession::open(Store &store, int rank, int size, milliseconds groupTimeout) {
    Agreement agreement(store, rank, size);
    Settings settings;
    std::shared_ptr<Library> library;
    std::shared_ptr<Jobs> session;
    std::string facts;
    milliseconds limit = kUsualLimit;
    switchml_config config{};
    config.struct_size = sizeof(config);
    config.rank = static_cast<uint32_t>(rank);
    config.num_workers = static_cast<uint32_t>(size);
    const std::string notLoaded = errorOf([&] {
        settings = Settings::read();
        library = Library::load(settings.library);  // first, as it compares what the ranks have to say
        settings.check();
        const switchml_config resolved = library->resolve(config);
        limit = openingLimit(resolved);
        facts = library->commonSettings(resolved);
        session = std::make_shared<Jobs>(library, resolved);
    });
    agreement.settle("load", notLoaded, facts, library.get(), limit);
    const std::string jobName = agreement.shareJobName(makeJobName(settings), limit);
    config.job_name = jobName.c_str();
    config.job_timeout_ms = settings.jobTimeoutMs(groupTimeout);
    agreement.settle("open", errorOf([&] { session->connect(config); }), "", library.get(), limit);
    makeCurrent(session, settings.statsPath(rank));
    return session;
}

void SwitchMLSession::countFallback(Fallback reason) { counters().fallbacks[static_cast<size_t>(reason)] += 1; }

std::string SwitchMLSession::report() {
    const auto session = currentSession();
    if (!session) {
        return switchml_detail::composeReport(nullptr);
    }
    const auto described = session->describe();
    return switchml_detail::composeReport(&described);
}

}  // namespace c10d
