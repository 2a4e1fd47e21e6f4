// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLAgreement.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>

namespace c10d {
namespace switchml_detail {

namespace {

// How long ranks wait, once something failed, for the slowest to have read why.
constexpr std::chrono::milliseconds kFarewell{5000};

// Between two looks into the store: short at first, for the ranks come together.
constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLongestPause{50};

constexpr const char *kRefused = "SwitchML was asked for but cannot be used: ";

std::string onOneLine(std::string text) {
    for (char &character : text) {
        const bool control = static_cast<unsigned char>(character) < 0x20;
        character = control ? ' ' : character;
    }
    return text;
}

}  // namespace

Agreement::Agreement(SwitchMLSession::Store &store, int rank, int size)
    : store_(store),
      rank_(rank),
      size_(size),
      prefix_("switchml/" + std::to_string(store.add("switchml/generation/" + std::to_string(rank), 1)) + "/") {}

void Agreement::settle(const std::string &stage, const std::string &error, const std::string &facts,
                       const Library *library, std::chrono::milliseconds timeout) {
    store_.set(key(stage, rank_), onOneLine(error) + "\n" + facts);
    const std::string wrong =
        library != nullptr ? complaints(stage, *library, timeout) : "rank " + std::to_string(rank_) + ": " + error;
    if (!wrong.empty()) {
        sayFarewell(stage);
        throw std::runtime_error(kRefused + wrong);
    }
}

std::string Agreement::shareJobName(const std::string &name, std::chrono::milliseconds timeout) {
    const std::string key = prefix_ + "job";
    if (rank_ == 0) {
        store_.set(key, name);
        return name;
    }
    if (!wait({key}, timeout)) {
        throw std::runtime_error(std::string(kRefused) + "rank 0 did not name the job within " +
                                 std::to_string(timeout.count()) + " ms");
    }
    return store_.get(key);
}

std::string Agreement::key(const std::string &stage, int rank) const {
    return prefix_ + stage + "/" + std::to_string(rank);
}

bool Agreement::wait(const std::vector<std::string> &keys, std::chrono::milliseconds timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    auto pause = kFirstPause;
    while (!store_.check(keys)) {
        if (std::chrono::steady_clock::now() >= until) {
            return false;
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, kLongestPause);
    }
    return true;
}

std::string Agreement::complaints(const std::string &stage, const Library &library, std::chrono::milliseconds timeout) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < size_; ++rank) {
        keys.push_back(key(stage, rank));
    }
    const bool complete = wait(keys, timeout);
    std::vector<std::string> values(keys.size());
    std::vector<const char *> reports;
    for (size_t rank = 0; rank < keys.size(); ++rank) {
        const bool present = complete || store_.check({keys[rank]});
        values[rank] = present ? store_.get(keys[rank]) : "";
        reports.push_back(present ? values[rank].c_str() : nullptr);
    }
    return library.compareReports(reports, static_cast<uint32_t>(timeout.count()));
}

// Keeps the rank that serves the store until the others have read the reports.
void Agreement::sayFarewell(const std::string &stage) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < size_; ++rank) {
        keys.push_back(key(stage + "/read", rank));
    }
    try {
        store_.set(keys[static_cast<size_t>(rank_)], "1");
        wait(keys, kFarewell);
    } catch (const std::exception &) {
        // the store ended before that: this rank knows what it needs to
    }
}

}  // namespace switchml_detail
}  // namespace c10d
