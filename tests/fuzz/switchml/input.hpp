// SPDX-License-Identifier: BSD-3-Clause
//
// What the fuzzed programs share: an input taken apart from its beginning, and
// promises whose breach ends the program, as libFuzzer wants it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace switchml::fuzz {

class Input {
  public:
    Input(const std::uint8_t *data, std::size_t bytes) : data_(data), bytes_(bytes) {}

    std::size_t left() const noexcept { return bytes_; }
    const std::uint8_t *data() const noexcept { return data_; }

    // Zeros after the end.
    std::uint8_t byte() {
        if (bytes_ == 0) return 0;
        --bytes_;
        return *data_++;
    }
    std::uint32_t number(int bytes) {
        std::uint32_t value = 0;
        for (int i = 0; i < bytes; ++i) value |= std::uint32_t{byte()} << (8 * i);
        return value;
    }
    // At most so many bytes, as they are.
    std::string text(std::size_t most) {
        const std::size_t count = std::min(most, bytes_);
        std::string taken(reinterpret_cast<const char *>(data_), count);
        data_ += count;
        bytes_ -= count;
        return taken;
    }
    // Up to the next of these characters, which is left out, or to the end.
    std::string until(char end) {
        const std::string_view rest(reinterpret_cast<const char *>(data_), bytes_);
        const std::size_t found = std::min(rest.find(end), bytes_);
        std::string taken = text(found);
        byte();
        return taken;
    }

  private:
    const std::uint8_t *data_;
    std::size_t bytes_;
};

inline void require(bool holds, const char *promise, const char *file, int line) {
    if (holds) return;
    std::fprintf(stderr, "%s:%d: broken: %s\n", file, line, promise);
    std::abort();
}

inline bool is_printable(const std::string &text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace switchml::fuzz

#define REQUIRE(condition) switchml::fuzz::require((condition), #condition, __FILE__, __LINE__)
