// SPDX-License-Identifier: BSD-3-Clause
//
// One open SwitchML session, which is one process group's: the order of its
// jobs, their completion, and its end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "call_limits.h"
#include "carrier.h"
#include "completion_pool.h"
#include "counters.h"
#include "device_lane.h"
#include "host_board.h"
#include "library.h"
#include "memory.h"
#include "work.h"

namespace torch_switchml {

struct SessionOptions {
    int rank = 0;
    int size = 1;
    uint32_t job_timeout_ms = 0;  // 0: the library's environment variable or default
    std::string job_name;         // the same on all ranks, and no other job's
    uint32_t worker_port = 0;     // 0: as job_timeout_ms; no other open session's on this rank
    // This process's number among the workers that the switch knows; none where
    // another rank of its host speaks for it.
    std::optional<int> worker = 0;
    int num_workers = 1;
    std::shared_ptr<HostBoard> board;  // of the ranks of this host that are one worker; or null
    std::string wire_ranks;            // as in HostReductionOptions
};

// What becomes of the sum.
struct Reduction {
    std::optional<double> factor;  // of each rank's addends, before
    bool average = false;          // over the ranks, after
};

// An allreduce that has not ended: its number among those of its session, from 1, and how much it is.
struct OpenCall {
    uint64_t number = 0;
    std::vector<std::vector<int64_t>> sizes;
    std::vector<std::string> dtypes;
};

// What an allreduce is to be, beside its tensors.
struct CallOptions {
    Reduction reduction;
    uint64_t sequence_number = 0;
    const char *title = nullptr;  // for the profiler; outlives the work
    CallLimits::Limit limit;      // beside the session's own
};

class Session : public std::enable_shared_from_this<Session> {
  public:
    // Opens the session and blocks until every worker is in or the library's
    // time limits passed. Throws std::runtime_error with the library's reason.
    // `check_signals` is called several times a second meanwhile; what it throws
    // ends the wait, cancels the opening, and is thrown on once that has ended, or
    // within a second: the thread of a library that does not look at
    // is_cancelled closes what it still opens. A rank that is no worker of its
    // own opens nothing.
    // `on_closed` runs once, after an opened session ended for whatever cause.
    static std::shared_ptr<Session> open(std::shared_ptr<Library> library, std::shared_ptr<Counters> counters,
                                         const SessionOptions &options, const std::function<void()> &check_signals,
                                         std::function<void()> on_closed);

    ~Session();
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    // Reduces `tensors` (dense, on the CPU or one device that has_lane knows, of
    // one dtype that travels as `wire`) over all
    // ranks in place, as one job. Jobs reach the wire in the order of these
    // calls, and take what the calls before them over the same memory left there.
    // Tensors that are not one contiguous buffer of the wire's type go
    // through a copy rather than to the wrapped backend, because another rank's
    // may be contiguous. Throws c10::DistBackendError when the session failed
    // before or is closed; a job that fails later, also by its time limit, fails
    // its work and the session.
    c10::intrusive_ptr<c10d::Work> submit(const std::vector<at::Tensor> &tensors, Dtype wire,
                                          const CallOptions &options);

    // For calls of the wrapped backend, which takes its tensors at the call: waits
    // until no job has any of `memory` still to write, and has the calling thread's
    // current streams wait for what is copied there. Jobs do not wait for it in turn
    // until keep_behind() says so.
    void await_jobs(const Memory &memory);

    // Has jobs that are submitted from now on wait for the wrapped backend's work
    // where they share its memory; for none that has no future.
    void keep_behind(std::shared_ptr<const Memory> memory, const c10::intrusive_ptr<c10d::Work> &work);

    // Works whose tensors are not final yet.
    std::vector<c10::intrusive_ptr<c10d::Work>> pending() const;

    // Jobs handed to the library so far.
    uint64_t submitted() const;

    // Those of them that have not ended, in the order of the calls.
    std::vector<OpenCall> open_calls() const;

    // Why the session accepts no more jobs, or nothing while it does.
    std::optional<std::string> failure() const;

    // The library's counters as a JSON object, after close() the last ones; nothing
    // where another rank of the host has the session with the switch.
    std::optional<std::string> library_stats() const;

    // Fails what is pending, for the reason given if there is one. Returns at once.
    void abort(const std::string &reason = {});

    // The same where another rank's process has ended, a moment later if anything is pending: it may have ended as soon
    // as it had the results that this rank still waits for. What fails meanwhile fails for the same reason.
    void end_for_lost_rank(const std::string &reason);

    // Waits for what is pending, at most as long as the library lets a job be
    // without progress, then ends the session and its threads. Idempotent. Must
    // not be called with Python's interpreter lock held. In a child made by
    // fork(), where the threads do not exist, it only lets go.
    void close();

  private:
    struct Transfer;
    struct Job;
    struct Part;
    struct Feeding;
    using Lanes = std::unordered_map<c10::Device, std::shared_ptr<DeviceLane>>;

    // A call whose tensors are not final yet.
    struct Access {
        std::shared_ptr<const Memory> memory;
        c10::intrusive_ptr<DelegatedWork> work;  // null: the wrapped backend's
        bool is_the_carriers = false;            // the carrier itself, which keeps its jobs over one memory in order
        std::string broken;                      // why what it is to take is not there
        uint64_t job = 0;                        // its number among the session's own

        bool comes_before(const Access &later) const;
    };

    Session(std::shared_ptr<Library> library, std::shared_ptr<Counters> counters, const SessionOptions &options);

    std::unique_ptr<Carrier> make_carrier(const std::function<void()> &check_signals) const;
    void check_usable() const;
    uint64_t enter(Access access);
    void enter(Job &job);
    bool has_to_wait(const Access &access, uint64_t number) const;
    bool has_to_wait(const Access &access) const;
    void settle(uint64_t number) noexcept;
    void break_followers(uint64_t number, const std::string &reason);
    void hand_over(std::unique_ptr<Job> job);
    bool send(Transfer &transfer);
    void add_busy(int change) noexcept;
    static void on_done(void *user, switchml_status status, const char *message) noexcept;
    void run_on_pool(std::unique_ptr<Transfer> transfer) noexcept;
    void record_end(Transfer &transfer, switchml_status status, const char *message) noexcept;
    void fail_for_want_of_a_thread(Transfer &transfer) noexcept;
    void fail(const std::string &reason) noexcept;
    std::optional<std::string> reason_of(switchml_status status) const;
    void end_for_limit(std::chrono::milliseconds limit);
    void complete(Job &job) noexcept;

    // Tensors of devices: device_jobs.cpp.
    std::shared_ptr<DeviceLane> lane_of(c10::Device device);
    void use_lane(Job &job, c10::Device device);
    void settle_on_devices(const std::shared_ptr<const Memory> &memory, c10d::Work &work) noexcept;
    void hand_to_feeder(std::unique_ptr<Job> job);
    void feed(std::unique_ptr<Job> job) noexcept;
    void feed_from_host(std::unique_ptr<Job> job) noexcept;
    void send_parts(Job &job);
    void send_part(Job &job, int64_t offset, int64_t numel);
    void complete_part(Part &part) noexcept;
    static bool close_part(Job &job) noexcept;
    void fail_copy(Job &job, std::exception_ptr error) noexcept;

    void drain();

    const std::shared_ptr<Library> library_;
    const std::shared_ptr<Counters> counters_;
    const SessionOptions options_;
    const pid_t owner_;
    std::function<void()> on_closed_;  // none until it is open
    std::unique_ptr<CompletionPool> pool_;
    // Waits for devices' copies, and for calls over the same memory, and hands the
    // jobs on in the callers' order; idle where there are neither.
    std::unique_ptr<CompletionPool> feeder_;
    std::unique_ptr<CallLimits> limits_;
    std::mutex lanes_mutex_;
    std::unique_ptr<Lanes> lanes_ = std::make_unique<Lanes>();

    // Null until it is open, then the same to the end.
    std::unique_ptr<Carrier> carrier_;

    // Is held while a job enters the carrier so that jobs keep the callers'
    // order. The carrier's threads take it only where no thread of the pool is to
    // be had.
    mutable std::mutex entry_mutex_;
    bool closed_ = false;

    // Guards what the library's threads change. Innermost.
    mutable std::mutex jobs_mutex_;
    std::condition_variable drained_;
    std::condition_variable settled_;
    std::map<uint64_t, Access> pending_;  // in the order of the calls
    uint64_t next_access_ = 0;
    int64_t busy_ = 0;  // jobs in the library and on the feeder
    uint64_t submitted_ = 0;
    std::optional<std::string> failure_;
    std::optional<std::string> loss_;  // of another rank
};

}  // namespace torch_switchml
