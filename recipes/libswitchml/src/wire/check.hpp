// SPDX-License-Identifier: BSD-3-Clause
//
// The least of a test framework, for the tests of both programs: no package to
// depend on. A program runs all its tests, or those named on the command line.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace switchml::check {

struct Test {
    const char *name;
    void (*body)();
};

inline std::vector<Test> &tests() {
    static std::vector<Test> all;
    return all;
}

struct Registration {
    Registration(const char *name, void (*body)()) { tests().push_back({name, body}); }
};

class Failed : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <class A, class B>
void equal(const A &actual, const B &expected, const char *text, const char *file, int line) {
    if (actual == expected) return;
    std::ostringstream message;
    message << file << ":" << line << ": " << text << ": got " << actual << ", expected " << expected;
    throw Failed(message.str());
}

inline void holds(bool condition, const std::string &text, const char *file, int line) {
    if (!condition) throw Failed(std::string(file) + ":" + std::to_string(line) + ": " + text);
}

inline int run(int argc, char **argv) {
    int failed = 0;
    int ran = 0;
    for (const Test &test : tests()) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], test.name) == 0;
        if (!wanted) continue;
        ++ran;
        try {
            test.body();
            std::printf("ok      %s\n", test.name);
        } catch (const std::exception &error) {
            ++failed;
            std::printf("FAILED  %s\n        %s\n", test.name, error.what());
        }
        std::fflush(stdout);
    }
    if (ran == 0) std::printf("no test of that name\n");
    return failed == 0 && ran > 0 ? 0 : 1;
}

}  // namespace switchml::check

#define TEST(name)                                                               \
    static void name();                                                          \
    static const switchml::check::Registration registration_##name(#name, name); \
    static void name()
#define CHECK(condition) switchml::check::holds((condition), "not true: " #condition, __FILE__, __LINE__)
#define CHECK_EQ(actual, expected) switchml::check::equal((actual), (expected), #actual, __FILE__, __LINE__)
#define CHECK_MENTIONS(text, part)                                            \
    switchml::check::holds(std::string(text).find(part) != std::string::npos, \
                           std::string("'") + (text) + "' does not mention '" + (part) + "'", __FILE__, __LINE__)
#define CHECK_MAIN() \
    int main(int argc, char **argv) { return switchml::check::run(argc, argv); }
