// SPDX-License-Identifier: BSD-3-Clause
//
// The workers of one job of a cluster: they meet, open a session, reduce, and
// start again, all of them, where one was killed or the session was lost.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "model_worker.hpp"

namespace switchml::simulation {

// A promise that was broken.
class Violation : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct GroupCounts {
    std::uint64_t sessions = 0;
    std::uint64_t reduced = 0;  // jobs, each counted on each rank
    std::uint64_t failed = 0;   // likewise
    std::uint64_t kills = 0;
    std::uint64_t wrong_by_altered = 0;  // results that are wrong because of corruption that no checksum catches

    void add(const GroupCounts &other);
};

class Group {
  public:
    Group(World &world, std::uint32_t number, Faults &faults)
        : world_(world), plan_(world.plan.groups[number]), number_(number), faults_(faults) {}

    void start();
    bool over() const noexcept { return over_; }
    // Looks whether the processes have ended, and has them started again where that is due.
    void settle();
    // Of a worker's address.
    void receive(const Packet &packet);
    bool owns(const wire::Endpoint &address) const noexcept { return (address.ip.ipv4() >> 8 & 0xFFU) == number_ + 1; }
    std::size_t lanes() const { return std::size_t{plan_.num_workers} * plan_.threads * plan_.window; }
    const GroupCounts &counts() const noexcept { return counts_; }

  private:
    // One session with its processes.
    struct Attempt {
        std::uint64_t session = 0;
        std::vector<JobValues> jobs;
        std::vector<std::unique_ptr<ModelWorker>> workers;  // by rank; empty until the session is open
        std::int64_t began_ns = 0;
        bool disturbed = false;  // by what may make jobs fail: a kill, a switch that was started again
        bool failed = false;     // some job of it, on some rank
        bool settled = false;
    };

    void open();
    void admit(std::uint32_t rank);
    void begin();
    void plan_kill();
    void job_ended(std::uint32_t rank, std::size_t job, bool done, const Bits &result);
    softswitch::SessionRequest seat(std::uint32_t rank) const;
    Attempt &latest() { return *attempts_.back(); }
    bool altered() const;
    bool may_fail() const;
    Random random(std::uint64_t number) const;

    World &world_;
    const GroupPlan &plan_;
    const std::uint32_t number_;
    Faults &faults_;
    std::vector<std::unique_ptr<Attempt>> attempts_;  // ended ones stay, for events that are still to come
    GroupCounts counts_;
    bool over_ = false;
};

}  // namespace switchml::simulation
