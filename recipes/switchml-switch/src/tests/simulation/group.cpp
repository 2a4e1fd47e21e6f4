// SPDX-License-Identifier: BSD-3-Clause
#include "group.hpp"

#include <algorithm>
#include <utility>

namespace switchml::simulation {
namespace {

constexpr std::uint16_t kFirstPort = 40000;
constexpr std::uint64_t kFirstKillKey = std::uint64_t{1} << 62;

}  // namespace

void GroupCounts::add(const GroupCounts &other) {
    sessions += other.sessions;
    reduced += other.reduced;
    failed += other.failed;
    kills += other.kills;
    wrong_by_altered += other.wrong_by_altered;
}

Random Group::random(std::uint64_t number) const {
    return {world_.plan.seed + number_ + 2, attempts_.size() << 32 | number};
}

void Group::start() {
    attempts_.push_back(std::make_unique<Attempt>());
    Random values = random(0);
    for (const JobPlan &job : plan_.jobs) latest().jobs.push_back(make_job(plan_, job, values));
    open();
}

softswitch::SessionRequest Group::seat(std::uint32_t rank) const {
    const std::uint64_t id = attempts_.back()->session;
    softswitch::SessionRequest request;
    request.session = {id, plan_.num_workers, plan_.packet_numel,
                       softswitch::Numbering{wire::first_number(id), plan_.window, plan_.threads}};
    request.rank = rank;
    request.member = {0x0A000000 | (number_ + 1) << 8 | rank, kFirstPort, static_cast<std::uint16_t>(plan_.threads),
                      true};
    request.job = "job " + std::to_string(number_);
    request.owner = "a process";
    return request;
}

// The processes have their ports; rank 0 asks first.
void Group::open() {
    Attempt &attempt = latest();
    attempt.session = Random(world_.plan.seed + number_, counts_.sessions++).next();
    attempt.workers.clear();
    for (std::uint32_t rank = 0; rank < plan_.num_workers; ++rank) {
        const auto on_end = [this, rank](std::size_t job, bool done, const Bits &result) {
            job_ended(rank, job, done, result);
        };
        attempt.workers.push_back(std::make_unique<ModelWorker>(world_, plan_, seat(rank), attempt.jobs, on_end));
    }
    admit(0);
}

void Group::admit(std::uint32_t rank) {
    Random delays = random(1000 + rank);
    if (!world_.net_switch.up() || !world_.net_switch.admit(seat(rank)).empty()) {
        world_.agenda.after(delays.between(1, 5) * kMs, [this] { open(); });
        return;
    }
    const std::uint32_t next = rank + 1;
    if (next == plan_.num_workers) return begin();
    world_.agenda.after(delays.between(0, 200 * kUs), [this, next] { admit(next); });
}

void Group::begin() {
    Attempt &attempt = latest();
    attempt.began_ns = world_.agenda.now_ns();
    for (std::uint32_t rank = 0; rank < plan_.num_workers; ++rank) {
        ModelWorker *worker = attempt.workers[rank].get();
        world_.agenda.after(random(2000 + rank).between(0, 2 * kMs), [worker] { worker->start(); });
    }
    if (attempts_.size() <= plan_.kills.size()) plan_kill();
}

// Killed with one worker, half of the time, are the others too, as launchers do.
void Group::plan_kill() {
    const std::size_t number = attempts_.size() - 1;
    const Kill &kill = plan_.kills[number];
    Random choice = random(3000);
    const bool all = choice.chance(0.5);
    Attempt *attempt = &latest();
    for (std::uint32_t rank = 0; rank < plan_.num_workers; ++rank) {
        if (rank != kill.rank && !all) continue;
        const std::int64_t later = rank == kill.rank ? 0 : choice.between(0, 3 * kMs);
        world_.agenda.after(kill.after_ns + later, [this, attempt, rank, number] {
            if (attempt->workers[rank]->over()) return;
            const std::uint64_t key = kFirstKillKey + 256 * number_ + 16 * number + rank;
            if (!faults_.happens(key, world_.agenda.now_ns(), "a worker is killed")) return;
            ++counts_.kills;
            attempt->disturbed = true;
            attempt->workers[rank]->kill();
        });
    }
}

void Group::receive(const Packet &packet) {
    if (!attempts_.empty()) latest().workers.at(packet.to.ip.ipv4() & 0xFFU)->receive(packet);
}

bool Group::altered() const {
    const Attempt &attempt = *attempts_.back();
    return world_.net_switch.altered(attempt.session) ||
           std::any_of(attempt.workers.begin(), attempt.workers.end(), [](const auto &w) { return w->altered(); });
}

// Jobs of a session that nobody disturbs have to come about over a network that gets well.
bool Group::may_fail() const {
    const Attempt &attempt = *attempts_.back();
    const Plan &plan = world_.plan;
    const auto hits = [&](std::int64_t restart_ns) {
        return restart_ns <= world_.agenda.now_ns() && restart_ns + kSwitchDownNs >= attempt.began_ns - kLongestSetUpNs;
    };
    return attempt.disturbed || altered() || plan.network.faults_end_ns > kJobTimeoutNs ||
           std::any_of(plan.switch_restarts_ns.begin(), plan.switch_restarts_ns.end(), hits) ||
           std::any_of(attempt.jobs.begin(), attempt.jobs.end(), [](const JobValues &job) { return !job.agreed; });
}

void Group::job_ended(std::uint32_t rank, std::size_t job, bool done, const Bits &result) {
    const std::string what = "job " + std::to_string(job) + " of group " + std::to_string(number_);
    if (!done) {
        ++counts_.failed;
        latest().failed = true;
        if (!may_fail()) throw Violation(what + " failed on rank " + std::to_string(rank) + " for no reason");
        return;
    }
    ++counts_.reduced;
    const auto wrong = find_wrong(latest().jobs[job], result);
    if (!wrong) return;
    if (!altered()) throw Violation(what + " ended well on rank " + std::to_string(rank) + " " + *wrong);
    ++counts_.wrong_by_altered;
}

// Once all processes have ended: the launcher starts them again where a job failed that may come about the next time.
void Group::settle() {
    if (attempts_.empty()) return;
    Attempt &attempt = latest();
    const bool ended =
        std::all_of(attempt.workers.begin(), attempt.workers.end(), [](const auto &w) { return w->over(); });
    if (attempt.settled || !ended) return;
    attempt.settled = true;
    const bool hopeless =
        std::any_of(attempt.jobs.begin(), attempt.jobs.end(), [](const JobValues &job) { return !job.agreed; });
    if (attempts_.size() == kMaxAttempts || hopeless || !(attempt.failed || attempt.disturbed)) {
        over_ = true;
        return;
    }
    world_.agenda.after(random(4000).between(0, 3 * kMs), [this] { start(); });
}

}  // namespace switchml::simulation
