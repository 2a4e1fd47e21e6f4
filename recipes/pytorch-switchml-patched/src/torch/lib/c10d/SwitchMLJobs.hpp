// SPDX-License-Identifier: BSD-3-Clause
//
// One session of libswitchml: the order of its jobs, their completion, its end.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "SwitchMLLibrary.hpp"
#include "SwitchMLReport.hpp"
#include "SwitchMLSession.hpp"

namespace c10d {
namespace switchml_detail {

class Jobs final : public SwitchMLSession, public std::enable_shared_from_this<Jobs> {
  public:
    // Of a resolved configuration. Opens nothing yet.
    Jobs(std::shared_ptr<Library> library, const switchml_config &resolved);
    ~Jobs() override;

    // Blocks until all workers are in; std::runtime_error with the library's reason.
    void connect(const switchml_config &config);

    // To be called once, at the end of an opened session.
    void onClosed(std::function<void()> action) { onClosed_ = std::move(action); }

    // Fails what is under way, at once.
    void abort();

    SessionReport describe() const;

    void enqueue(std::function<void()> job) override;
    void submit(void *data, uint64_t numel, Dtype dtype, Done done) override;
    void countCopied() override { counters().copied += 1; }
    void fail(const std::string &reason) override;
    void close() override;

  private:
    struct Transfer;

    static void onDone(void *user, switchml_status status, const char *message);
    std::string tryToSubmit(Transfer &transfer, void *data);
    void finish(const Transfer &transfer, const std::string &error);
    void work();
    void end();
    void setFailure(const std::string &reason);
    std::string failure() const;
    switchml_stats stats() const;

    const std::shared_ptr<Library> library_;
    const int rank_;
    const int size_;
    const std::string controller_;
    const pid_t owner_;
    std::thread thread_;
    std::function<void()> onClosed_;

    mutable std::mutex mutex_;  // guards the five below
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;
    uint64_t busy_ = 0;  // in the library
    bool closing_ = false;
    std::string failure_;

    // Guards the context's end against whoever asks for its counters or aborts it.
    mutable std::mutex contextMutex_;
    switchml_context *context_ = nullptr;
    switchml_stats lastStats_{};
};

}  // namespace switchml_detail
}  // namespace c10d
