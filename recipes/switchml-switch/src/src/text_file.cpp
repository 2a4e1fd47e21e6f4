// SPDX-License-Identifier: BSD-3-Clause
#include "text_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

namespace switchml::softswitch {
namespace {

void replace_file(const TextFileOptions &options, const std::string &text) {
    const std::string &path = options.path;
    const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";  // node exporter reads *.prom alone
    const auto fail = [&](const std::string &what) {
        const int error = errno;
        std::remove(temporary.c_str());
        throw std::system_error(error, std::generic_category(), what + " the " + options.what + " " + path);
    };
    std::FILE *file = std::fopen(temporary.c_str(), "w");
    if (file == nullptr) fail("cannot write");
    const bool permitted = !options.readable_by_all || fchmod(fileno(file), 0644) == 0;
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const bool closed = std::fclose(file) == 0;
    if (!permitted || !written || !closed) fail("cannot write");
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail("cannot replace");
}

}  // namespace

TextFile::TextFile(TextFileOptions options, Render render) : options_(std::move(options)), render_(std::move(render)) {
    write();
    thread_ = std::thread([this] { serve(); });
}

TextFile::~TextFile() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    stop_requested_.notify_all();
    thread_.join();
    if (options_.removed_at_end) std::remove(options_.path.c_str());
}

void TextFile::write() {
    std::string text = render_();
    if (text == written_ && !options_.also_unchanged) return;
    replace_file(options_, text);
    written_ = std::move(text);
    failed_ = false;
}

void TextFile::refresh() noexcept {
    const std::lock_guard lock(write_mutex_);
    try {
        write();
    } catch (const std::exception &error) {
        if (!std::exchange(failed_, true)) std::fprintf(stderr, "switchml-switch: %s\n", error.what());
    }
}

void TextFile::serve() {
    std::unique_lock lock(mutex_);
    bool last = false;
    while (!last) {
        last = stop_requested_.wait_for(lock, options_.interval, [this] { return stopping_; });
        lock.unlock();
        if (!last || !options_.removed_at_end) refresh();
        lock.lock();
    }
}

}  // namespace switchml::softswitch
