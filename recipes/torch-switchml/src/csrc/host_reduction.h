// SPDX-License-Identifier: BSD-3-Clause
//
// The ranks of a host as one worker: they add their elements in the memory
// they share, each a part of them; the leader, one of them, has the host's sum
// reduced over the hosts, and all copy the result out. The next elements are
// added while those before them are on the wire.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "carrier.h"
#include "host_board.h"
#include "host_plan.h"

namespace torch_switchml {

struct HostReductionOptions {
    uint32_t job_timeout_ms = 30'000;
    std::string wire_ranks;  // who the ranks are that the wire speaks of, put behind its messages
};

class HostReduction final : public Carrier {
  public:
    // `wire` carries the leader's jobs; null for the others, and for all where
    // the group has no other host. Throws std::system_error where no thread is to
    // be had.
    HostReduction(std::shared_ptr<HostBoard> board, std::unique_ptr<Carrier> wire, HostReductionOptions options);
    ~HostReduction() override;
    HostReduction(const HostReduction &) = delete;
    HostReduction &operator=(const HostReduction &) = delete;

    switchml_status submit(void *data, uint64_t numel, Dtype dtype, switchml_callback callback, void *user,
                           std::string &reason) override;
    // As a failure of this rank, for all ranks of the host and, as a worker that
    // left, for the other hosts.
    void abort(const std::string &reason) override;
    bool read_stats(switchml_stats &stats) const override;
    void close() override;

  private:
    using Clock = std::chrono::steady_clock;

    struct Job {
        char *data;
        switchml_callback callback;
        void *user;
        JobPlan plan;
        uint64_t after = 0;  // begins when this rank has the results of so many jobs
    };

    void serve() noexcept;
    bool progress();
    bool accept_jobs();
    uint64_t jobs_before(const Job &job) const;
    bool copy_in();
    bool reduce();
    bool hand_on();
    bool take_result();
    const Job *job_of_step(uint64_t step) const;
    const Job *job_of_chunk(uint64_t chunk) const;
    Part own_part(const Step &step) const;
    void add_part(const Job &job, const Step &step, uint64_t number);
    bool same_everywhere(uint64_t step) const;
    void report_difference(uint64_t step, Dtype dtype);
    void set_refusing(bool refusing) noexcept;
    static void on_carried(void *user, switchml_status status, const char *message) noexcept;
    static void on_refused(void *user, switchml_status status, const char *message) noexcept;
    void wait_for_news(uint32_t seen);
    void look_around();
    std::size_t find_lagging() const;
    void fail_for_lagging(std::size_t lagging, int64_t silence_ms);
    void end_all(const HostFailure &failure) noexcept;

    const std::shared_ptr<HostBoard> board_;
    const std::unique_ptr<Carrier> wire_;
    const HostReductionOptions options_;

    std::mutex mutex_;  // guards the four
    std::deque<Job> arrived_;
    bool closing_ = false;
    bool failed_ = false;
    bool refusing_ = false;  // a job that tells the other hosts of a difference is under way
    std::condition_variable refusal_ended_;

    // The thread's own.
    std::deque<Job> jobs_;  // accepted, and not ended
    uint64_t next_job_ = 0;
    uint64_t next_step_ = 0;
    uint64_t next_chunk_ = 0;
    uint64_t submitted_ = 0;             // chunks handed on
    std::vector<const char *> sources_;  // of the part that is being added
    std::vector<char> refused_;          // what the job of a difference travels in
    Clock::time_point last_progress_;
    Clock::time_point last_look_;

    std::atomic<bool> others_know_{false};  // the other hosts learn of the failure by the wire's jobs

    std::thread thread_;
};

}  // namespace torch_switchml
