// SPDX-License-Identifier: BSD-3-Clause
#include "stats_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

namespace switchml::softswitch {
namespace {

constexpr std::chrono::milliseconds kInterval{500};

void replace_file(const std::string &path, const std::string &text) {
    const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
    const auto fail = [&](const char *what) {
        const int error = errno;
        std::remove(temporary.c_str());
        throw std::system_error(error, std::generic_category(), std::string(what) + " " + path);
    };
    std::FILE *file = std::fopen(temporary.c_str(), "w");
    if (file == nullptr) fail("cannot write the stats file");
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const bool closed = std::fclose(file) == 0;
    if (!written || !closed) fail("cannot write the stats file");
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("cannot replace the stats file");
}

}  // namespace

StatsFile::StatsFile(std::string path, DataPlane &plane) : path_(std::move(path)), plane_(plane) {
    write();
    thread_ = std::thread([this] { serve(); });
}

StatsFile::~StatsFile() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    stop_requested_.notify_all();
    thread_.join();
}

void StatsFile::write() {
    std::string text = to_json(plane_.counters()) + "\n";
    if (text == written_) return;
    replace_file(path_, text);
    written_ = std::move(text);
    failed_ = false;
}

void StatsFile::refresh() noexcept {
    const std::lock_guard lock(write_mutex_);
    try {
        write();
    } catch (const std::exception &error) {
        if (!std::exchange(failed_, true)) std::fprintf(stderr, "switchml-switch: %s\n", error.what());
    }
}

void StatsFile::serve() {
    std::unique_lock lock(mutex_);
    bool last = false;
    while (!last) {
        last = stop_requested_.wait_for(lock, kInterval, [this] { return stopping_; });
        lock.unlock();
        refresh();
        lock.lock();
    }
}

}  // namespace switchml::softswitch
