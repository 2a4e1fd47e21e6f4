// SPDX-License-Identifier: BSD-3-Clause
//
// The C ABI with C++ manners, for tests: a context that closes itself and jobs
// to wait for.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>

#include "switchml.h"

namespace switchml::testing {

struct Result {
    switchml_status status;
    std::string message;
};

class Job {
  public:
    static void callback(void *user, switchml_status status, const char *message) {
        static_cast<Job *>(user)->done_.set_value({status, message});
    }

    // Throws when the job has not ended after so long.
    Result wait(std::chrono::seconds limit = std::chrono::seconds(60)) {
        if (result_.wait_for(limit) != std::future_status::ready) throw std::runtime_error("a job did not end");
        return result_.get();
    }

  private:
    std::promise<Result> done_;
    std::future<Result> result_ = done_.get_future();
};

struct Close {
    void operator()(switchml_context *context) const { switchml_close(context); }
};
using Context = std::unique_ptr<switchml_context, Close>;

class OpenFailed : public std::runtime_error {
  public:
    OpenFailed(switchml_status code, const std::string &message) : std::runtime_error(message), status(code) {}
    switchml_status status;
};

inline Context open(const switchml_config &config) {
    switchml_context *context = nullptr;
    const switchml_status status = switchml_open(&config, &context);
    if (status != SWITCHML_OK) throw OpenFailed(status, switchml_last_error());
    return Context(context);
}

inline switchml_stats stats_of(const Context &context) {
    switchml_stats stats{};
    stats.struct_size = sizeof stats;
    if (switchml_get_stats(context.get(), &stats) != SWITCHML_OK) throw std::runtime_error(switchml_last_error());
    return stats;
}

}  // namespace switchml::testing
