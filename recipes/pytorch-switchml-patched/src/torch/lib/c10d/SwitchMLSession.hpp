// SPDX-License-Identifier: BSD-3-Clause
//
// What carries the default group's eligible allreduces where the environment
// asks for it: one session of libswitchml, the order of its jobs, and the
// account of who carried what. Settings, agreement and what the report says of
// the transport are libswitchml's, as for the torch-switchml plugin.
//
// Nothing of PyTorch and no header of libswitchml is needed to include this:
// ProcessGroupGloo has the same members however it was built.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace c10d {

class SwitchMLSession {
  public:
    // How the ranks tell each other what they came to: a group's store.
    class Store {
      public:
        virtual ~Store() = default;
        virtual void set(const std::string &key, const std::string &value) = 0;
        virtual std::string get(const std::string &key) = 0;
        // To a number, 0 at first; its new value.
        virtual int64_t add(const std::string &key, int64_t amount) = 0;
        // Whether all keys have a value.
        virtual bool check(const std::vector<std::string> &keys) = 0;
    };

    enum class Dtype { kFloat32, kInt32 };

    // Why gloo carried an allreduce. Each depends on the call alone and never on
    // what may differ between ranks, so that all ranks decide alike. kDevice is
    // the plugin's, for devices that PyTorch 1.7.1 does not know; here it stays at 0.
    enum class Fallback { kGroup, kSeveralTensors, kReduceOp, kSparse, kDevice, kDtype };

    // Called once, from a thread of the library or of the session: with the reason
    // of a failure, "" for none. Must not throw.
    using Done = std::function<void(const std::string &error)>;

    // Whether the environment asks for SwitchML. Never throws: a malformed
    // SWITCHML_ENABLE is a yes, for open() to complain of.
    static bool requested();

    // Opens the session on all ranks or on none: throws std::runtime_error on
    // every rank, with each failing rank's reason, if one of them cannot.
    static std::shared_ptr<SwitchMLSession> open(Store &store, int rank, int size,
                                                 std::chrono::milliseconds groupTimeout);

    virtual ~SwitchMLSession() = default;

    // Runs jobs one after another in the order of the calls, on a thread of its
    // own: every rank must hand the switch the same jobs in the same order, and
    // gloo's threads take theirs in any. Throws std::runtime_error once it is closed.
    virtual void enqueue(std::function<void()> job) = 0;

    // Sums over all ranks, in place; to be called from a job. Returns at once, so
    // that the next job is on the wire while this one is; `data` stays in use until
    // `done` is called.
    virtual void submit(void *data, uint64_t numel, Dtype dtype, Done done) = 0;

    // One of the jobs went through a copy, its tensor not being what travels.
    virtual void countCopied() = 0;

    // Fails what is under way and all that comes, with this reason where there is
    // none yet: the ranks' sequences of jobs differ from here on.
    virtual void fail(const std::string &reason) = 0;

    // Waits for the jobs enqueued, ends the session and writes the report.
    // Jobs end on their own: the library gives up on one without progress.
    virtual void close() = 0;

    // Also without a session: other groups' allreduces are counted, too.
    static void countFallback(Fallback reason);

    // The report of this process, as JSON.
    static std::string report();
};

}  // namespace c10d
