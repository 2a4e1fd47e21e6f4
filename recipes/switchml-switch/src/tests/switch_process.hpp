// SPDX-License-Identifier: BSD-3-Clause
//
// A running switchml-switch, and workers of a session with it.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "completion.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::testing {

// An address of 127/8 that no other process of the test run uses.
inline std::string private_address(std::uint32_t last) {
    const auto pid = static_cast<std::uint32_t>(getpid());
    return "127." + std::to_string(1 + pid % 250) + "." + std::to_string(pid / 250 % 250) + "." + std::to_string(last);
}

struct Exit {
    int code;            // of the process; -1 when a signal ended it
    std::string output;  // what was left on its standard output
};

class Process {
  public:
    explicit Process(std::vector<std::string> arguments) {
        int ends[2];
        if (pipe(ends) != 0) throw std::runtime_error("cannot make a pipe");
        std::vector<char *> argv;
        for (auto &argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        pid_ = fork();
        if (pid_ < 0) throw std::runtime_error("cannot fork");
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that dies leaves no switch behind
            dup2(ends[1], STDOUT_FILENO);
            close(ends[0]);
            close(ends[1]);
            execv(argv[0], argv.data());
            _exit(127);
        }
        close(ends[1]);
        output_ = fdopen(ends[0], "r");
    }

    ~Process() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            wait();
        }
        std::fclose(output_);
    }

    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

    std::string read_line() {
        std::string line;
        for (int c = std::fgetc(output_); c != EOF && c != '\n'; c = std::fgetc(output_)) line += static_cast<char>(c);
        return line;
    }

    void signal(int number) const { kill(pid_, number); }

    Exit wait() {
        Exit exit{-1, {}};
        for (int c = std::fgetc(output_); c != EOF; c = std::fgetc(output_)) exit.output += static_cast<char>(c);
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
        return exit;
    }

  private:
    pid_t pid_ = -1;
    std::FILE *output_ = nullptr;
};

// The value of a key in a line of JSON; good enough for lines whose keys are known.
inline std::string json_value(const std::string &line, const std::string &key) {
    const std::string quoted = "\"" + key + "\": ";
    const std::size_t start = line.find(quoted);
    if (start == std::string::npos) throw std::runtime_error("no " + key + " in: " + line);
    std::size_t from = start + quoted.size();
    if (line[from] != '"') return line.substr(from, line.find_first_of(",}", from) - from);
    ++from;
    return line.substr(from, line.find('"', from) - from);
}

inline std::uint64_t json_number(const std::string &line, const std::string &key) {
    return std::stoull(json_value(line, key));
}

class Switch {
  public:
    explicit Switch(const std::vector<std::string> &more = {}) : process_(arguments(more)) {
        ready = process_.read_line();
        controller = json_value(ready, "controller");
        data = json_value(ready, "data");
    }

    // Its counters.
    std::string stop() {
        process_.signal(SIGTERM);
        const Exit exit = process_.wait();
        if (exit.code != 0) throw std::runtime_error("the switch exited with " + std::to_string(exit.code));
        return exit.output;
    }

    void kill() {
        process_.signal(SIGKILL);
        process_.wait();
    }

    std::string ready;  // the line that it printed
    std::string controller;
    std::string data;

  private:
    static std::vector<std::string> arguments(const std::vector<std::string> &more) {
        std::vector<std::string> all{SWITCHML_SWITCH_EXECUTABLE, "--address", private_address(1), "--controller-port",
                                     "0"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }

    Process process_;
};

using Configure = std::function<void(switchml_config &)>;

// One context per rank, opened at the same time.
class Workers {
  public:
    Workers(const Switch &net, std::uint32_t count, const Configure &configure = {}) {
        std::vector<std::future<Context>> opening;
        for (std::uint32_t rank = 0; rank < count; ++rank) {
            opening.push_back(std::async(std::launch::async, [&net, rank, count, &configure] {
                return open_rank(net.controller, rank, count, configure);
            }));
        }
        for (auto &context : opening) contexts.push_back(context.get());
    }

    static Context open_rank(const std::string &controller, std::uint32_t rank, std::uint32_t count,
                             const Configure &configure) {
        const std::string address = private_address(2 + rank);
        switchml_config config{};
        config.struct_size = sizeof config;
        config.rank = rank;
        config.num_workers = count;
        config.controller = controller.c_str();
        config.local_address = address.c_str();
        if (configure) configure(config);
        return open(config);
    }

    std::vector<Context> contexts;
};

}  // namespace switchml::testing
