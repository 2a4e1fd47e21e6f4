// SPDX-License-Identifier: BSD-3-Clause
//
// ranks SIZE SCENARIO [RANK:NAME=VALUE ...]: runs the ranks of a group, each a
// process, over SwitchMLSession alone; the assignments change the environment of
// one rank. Prints a line per rank and event, "RANK what happened"; exits with 1
// if a rank crashed or computed something wrong.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "SwitchMLSession.hpp"
#include "shared_store.hpp"

namespace {

using c10d::SwitchMLSession;
using SessionPtr = std::shared_ptr<SwitchMLSession>;

constexpr std::chrono::milliseconds kGroupTimeout{60000};
constexpr int kJobs = 40;
constexpr std::chrono::milliseconds kTimeout{20000};

struct Rank {
    int rank;
    int size;
    SharedStore &store;

    void say(const std::string &what) const {
        const std::string line = std::to_string(rank) + " " + what + "\n";
        if (write(STDOUT_FILENO, line.data(), line.size()) < 0) {
            std::abort();
        }
    }

    SessionPtr open() const { return SwitchMLSession::open(store, rank, size, kGroupTimeout); }
};

// One job and what it came to: an error, or "" for none.
std::future<std::string> start(const SessionPtr &session, const std::shared_ptr<std::vector<char>> &data,
                               uint64_t numel, SwitchMLSession::Dtype dtype) {
    auto promise = std::make_shared<std::promise<std::string>>();
    auto future = promise->get_future();
    session->enqueue([=] {
        session->submit(data->data(), numel, dtype,
                        [promise, data](const std::string &error) { promise->set_value(error); });
    });
    return future;
}

template <typename Number>
std::shared_ptr<std::vector<char>> numbers(std::size_t numel, Number first) {
    auto bytes = std::make_shared<std::vector<char>>(numel * sizeof(Number));
    auto *const values = reinterpret_cast<Number *>(bytes->data());
    std::iota(values, values + numel, first);
    return bytes;
}

template <typename Number>
bool isSum(const std::vector<char> &bytes, const std::vector<Number> &firsts) {
    const auto *const values = reinterpret_cast<const Number *>(bytes.data());
    const double first = std::accumulate(firsts.begin(), firsts.end(), 0.0);
    for (std::size_t i = 0; i < bytes.size() / sizeof(Number); ++i) {
        const double exact = first + static_cast<double>(firsts.size() * i);
        if (std::abs(static_cast<double>(values[i]) - exact) > 1e-5 * std::abs(exact) + 1e-3) {
            return false;
        }
    }
    return true;
}

// Jobs of both types and many sizes, none of which is waited for before the
// next: only their order on the session's thread can keep them apart.
int sums(const Rank &self) {
    const SessionPtr session = self.open();
    std::vector<std::shared_ptr<std::vector<char>>> data;
    std::vector<std::future<std::string>> ends;
    for (int job = 0; job < kJobs; ++job) {
        const bool whole = job % 2 != 0;
        const std::size_t numel = static_cast<std::size_t>(job) * 97;
        data.push_back(whole ? numbers<int32_t>(numel, self.rank * 100 + job)
                             : numbers<float>(numel, static_cast<float>(self.rank * 100 + job)));
        const auto dtype = whole ? SwitchMLSession::Dtype::kInt32 : SwitchMLSession::Dtype::kFloat32;
        ends.push_back(start(session, data.back(), numel, dtype));
    }
    for (int job = 0; job < kJobs; ++job) {
        const std::string error = ends[static_cast<std::size_t>(job)].get();
        std::vector<int32_t> firsts;
        for (int rank = 0; rank < self.size; ++rank) {
            firsts.push_back(rank * 100 + job);
        }
        const auto &bytes = *data[static_cast<std::size_t>(job)];
        const bool right = job % 2 != 0 ? isSum<int32_t>(bytes, firsts)
                                        : isSum<float>(bytes, std::vector<float>(firsts.begin(), firsts.end()));
        if (!error.empty() || !right) {
            self.say("job " + std::to_string(job) + " went wrong: " + error);
            return 1;
        }
    }
    SwitchMLSession::countFallback(SwitchMLSession::Fallback::kReduceOp);
    session->countCopied();
    session->close();
    try {
        session->enqueue([] {});
        return 1;
    } catch (const std::exception &error) {
        self.say(error.what());
    }
    return 0;
}

int opens(const Rank &self) {
    try {
        self.open();
        self.say("opened");
    } catch (const std::exception &error) {
        self.say(error.what());
    }
    return 0;
}

// The last rank of the group knows nothing of SwitchML.
int absent(const Rank &self) { return self.rank + 1 == self.size ? 0 : opens(self); }

// The last rank ends after one job, without a word.
int dies(const Rank &self) {
    const SessionPtr session = self.open();
    constexpr std::size_t kNumel = 1000;
    for (int job = 0; job < 3; ++job) {
        auto data = numbers<float>(kNumel, 0);
        const std::string error = start(session, data, kNumel, SwitchMLSession::Dtype::kFloat32).get();
        self.say(error.empty() ? "reduced" : error);
        if (self.rank + 1 == self.size) {
            _exit(0);
        }
    }
    return 0;
}

// Whether a counter of the transport's came to a value in good time.
bool counts(const std::string &counter, uint64_t value) {
    const auto until = std::chrono::steady_clock::now() + kTimeout;
    while (SwitchMLSession::report().find("\"" + counter + "\": " + std::to_string(value) + ",") == std::string::npos) {
        if (std::chrono::steady_clock::now() > until) {
            return false;
        }
        std::this_thread::yield();
    }
    return true;
}

// The last rank's jobs come once the others' are all in the library.
int overlaps(const Rank &self) {
    const SessionPtr session = self.open();
    constexpr std::size_t kNumel = 1000;
    const std::string ready = "ready/" + std::to_string(self.rank);
    const bool last = self.rank + 1 == self.size;
    for (int rank = 0; last && rank + 1 < self.size; ++rank) {
        self.store.wait({"ready/" + std::to_string(rank)}, kTimeout);
    }
    std::vector<std::future<std::string>> ends;
    for (int job = 0; job < kJobs; ++job) {
        ends.push_back(start(session, numbers<float>(kNumel, 0), kNumel, SwitchMLSession::Dtype::kFloat32));
    }
    if (!last) {
        self.say(counts("jobs_submitted", kJobs) && counts("jobs_completed", 0) ? "all under way" : "one at a time");
        self.store.set(ready, "1");
    }
    for (auto &end : ends) {
        if (!end.get().empty()) {
            return 1;
        }
    }
    session->close();
    return 0;
}

// Rank 0 ends with a job under way, the others keep theirs back until it has.
int leaves(const Rank &self) {
    const SessionPtr session = self.open();
    constexpr std::size_t kNumel = 1000;
    if (self.rank == 0) {
        start(session, numbers<float>(kNumel, 0), kNumel, SwitchMLSession::Dtype::kFloat32);
        return counts("jobs_submitted", 1) ? 0 : 1;
    }
    const bool ended = self.store.wait({"ended"}, kTimeout);
    self.say(ended ? "rank 0 has ended" : "rank 0 still runs");
    return 0;
}

int asks(const Rank &self) {
    self.say(SwitchMLSession::requested() ? "requested" : "not requested");
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    const std::map<std::string, std::function<int(const Rank &)>> scenarios = {
        {"sums", sums},         {"opens", opens},   {"absent", absent}, {"dies", dies},
        {"overlaps", overlaps}, {"leaves", leaves}, {"asks", asks}};
    const int size = argc > 2 ? std::atoi(argv[1]) : 0;
    const auto scenario = scenarios.find(argc > 2 ? argv[2] : "");
    if (size < 1 || scenario == scenarios.end()) {
        std::fprintf(stderr, "usage: ranks SIZE SCENARIO [RANK:NAME=VALUE ...]\n");
        return 2;
    }
    SharedStore store = SharedStore::make();
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
        const pid_t child = fork();
        if (child == 0) {
            for (int i = 3; i < argc; ++i) {
                const std::string text = argv[i];
                const auto colon = text.find(':');
                const auto equals = text.find('=');
                if (std::atoi(text.substr(0, colon).c_str()) == rank) {
                    setenv(text.substr(colon + 1, equals - colon - 1).c_str(), text.substr(equals + 1).c_str(), 1);
                }
            }
            std::exit(scenario->second(Rank{rank, size, store}));
        }
        children.push_back(child);
    }
    int result = 0;
    for (const pid_t child : children) {  // rank 0 first
        int status = 0;
        waitpid(child, &status, 0);
        result |= status != 0;
        if (child == children.front()) {
            store.set("ended", "1");
        }
    }
    return result;
}
