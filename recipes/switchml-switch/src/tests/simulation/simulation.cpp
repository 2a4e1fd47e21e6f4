// SPDX-License-Identifier: BSD-3-Clause
#include "simulation.hpp"

#include <algorithm>
#include <memory>

namespace switchml::simulation {
namespace {

constexpr std::int64_t kTimeLimitNs = 600'000 * kMs;
constexpr std::size_t kPacketsPerLane =
    64;  // a lane sends once per timeout, 1, 2, 4 ... ms; all delays are below 100 ms
constexpr std::uint64_t kFirstRestartKey = std::uint64_t{1} << 63;

class Run {
  public:
    Run(const Plan &plan, Weakness weakness, Faults &faults)
        : plan_(plan),
          faults_(faults),
          network_(plan, agenda_, faults),
          switch_(agenda_, network_, weakness),
          world_{plan, agenda_, network_, switch_, weakness} {
        network_.on_arrival([this](const Packet &packet) { deliver(packet); });
        for (std::uint32_t number = 0; number < plan.groups.size(); ++number) {
            groups_.push_back(std::make_unique<Group>(world_, number, faults));
            Group *group = groups_.back().get();
            agenda_.after(plan.groups[number].start_ns, [group] { group->start(); });
            lanes_ += group->lanes();
        }
        for (std::size_t i = 0; i < plan.switch_restarts_ns.size(); ++i)
            agenda_.after(plan.switch_restarts_ns[i], [this, i] { restart_switch(i); });
    }

    void to_the_end() {
        while (!over()) {
            if (!agenda_.step()) throw Violation("nothing is left to happen, and some workers still wait");
            if (agenda_.now_ns() > kTimeLimitNs) throw Violation("workers still wait after ten minutes");
            for (auto &group : groups_) group->settle();
            check_bounds();
        }
    }

    std::int64_t now_ns() const { return agenda_.now_ns(); }

    void report(Totals &totals) const {
        totals.network = network_.counts();
        totals.schedules = 1;
        totals.switch_restarts = switch_restarts_;
        totals.most_in_flight = most_in_flight_;
        for (const auto &group : groups_) totals.groups.add(group->counts());
    }

  private:
    bool over() const {
        return std::all_of(groups_.begin(), groups_.end(), [](const auto &group) { return group->over(); });
    }

    void check_bounds() {
        most_in_flight_ = std::max<std::uint64_t>(most_in_flight_, network_.in_flight());
        if (network_.in_flight() > kPacketsPerLane * lanes_) throw Violation("packets under way without bound");
        if (switch_.sessions() > kMaxSessions) throw Violation("sessions of the switch without bound");
    }

    void deliver(const Packet &packet) {
        if (packet.to.ip == switch_endpoint().ip) return switch_.receive(packet);
        for (auto &group : groups_) {
            if (group->owns(packet.to)) group->receive(packet);
        }
    }

    void restart_switch(std::size_t number) {
        if (!faults_.happens(kFirstRestartKey + number, agenda_.now_ns(), "the switch is started again")) return;
        ++switch_restarts_;
        switch_.restart(kSwitchDownNs);
    }

    const Plan &plan_;
    Faults &faults_;
    Agenda agenda_;
    Network network_;
    ModelSwitch switch_;
    World world_;
    std::vector<std::unique_ptr<Group>> groups_;
    std::size_t lanes_ = 0;
    std::uint64_t switch_restarts_ = 0;
    std::uint64_t most_in_flight_ = 0;
};

}  // namespace

void Totals::add(const Totals &other) {
    network.add(other.network);
    groups.add(other.groups);
    schedules += other.schedules;
    switch_restarts += other.switch_restarts;
    most_in_flight = std::max(most_in_flight, other.most_in_flight);
}

Outcome simulate(const Plan &plan, Weakness weakness, const std::set<std::uint64_t> &left_out) {
    Outcome outcome;
    Faults faults(left_out);
    Run run(plan, weakness, faults);
    try {
        run.to_the_end();
    } catch (const Violation &violation) {
        outcome.violation = violation.what();
    }
    outcome.ended_ns = run.now_ns();
    outcome.faults = faults.happened();
    run.report(outcome.totals);
    return outcome;
}

// Leaves out half of what happened, then quarters, and so on to single faults.
std::set<std::uint64_t> minimise(const Plan &plan, Weakness weakness) {
    std::set<std::uint64_t> left_out;
    std::vector<Fault> faults = simulate(plan, weakness, left_out).faults;
    for (std::size_t piece = std::max<std::size_t>(faults.size() / 2, 1);; piece /= 2) {
        for (std::size_t first = 0; first < faults.size();) {
            std::set<std::uint64_t> more = left_out;
            const std::size_t end = std::min(first + piece, faults.size());
            for (std::size_t i = first; i < end; ++i) more.insert(faults[i].key);
            Outcome outcome = simulate(plan, weakness, more);
            if (!outcome.violation) {
                first = end;
                continue;
            }
            left_out = std::move(more);
            faults = std::move(outcome.faults);
        }
        if (piece <= 1) return left_out;
    }
}

}  // namespace switchml::simulation
