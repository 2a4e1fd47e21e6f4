// SPDX-License-Identifier: BSD-3-Clause
//
// A worker process of libswitchml without sockets, threads and gRPC: its own
// slices, pipelines, timers and timeouts in virtual time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agenda.hpp"
#include "job.hpp"
#include "model_switch.hpp"
#include "network.hpp"
#include "udp/liveness.hpp"
#include "udp/pipeline.hpp"

namespace switchml::simulation {

// What all of a schedule's actors share.
struct World {
    const Plan &plan;
    Agenda &agenda;
    Network &network;
    ModelSwitch &net_switch;
    Weakness weakness;
};

class ModelWorker {
  public:
    // Called with the number of the job, whether it was reduced, and what then stands in the output.
    using OnEnd = std::function<void(std::size_t job, bool done, const Bits &result)>;

    ModelWorker(World &world, const GroupPlan &group, const softswitch::SessionRequest &seat,
                const std::vector<JobValues> &jobs, OnEnd on_end);

    // Submits all jobs, in their order.
    void start();
    // As SIGKILL.
    void kill();
    bool over() const noexcept { return over_; }

    void receive(const Packet &packet);

    // Whether it took a result that corruption had changed.
    bool altered() const noexcept { return altered_; }

  private:
    struct Job {
        Bits in;
        Bits out;  // empty: in place
        std::uint32_t slices_left;
    };

    // A thread with its socket.
    struct Line {
        Line(const GroupPlan &group, std::uint32_t thread, std::uint32_t first_number, bool numbered)
            : trips(udp::RetransmitTimes::from_first(kRetransmitNs), numbered),
              pipeline(udp::SlotRing(thread, group.window, first_number), group.packet_numel, group.num_workers, trips,
                       numbered) {}

        udp::RoundTrips trips;
        udp::Pipeline pipeline;
        std::deque<std::size_t> jobs;
        std::deque<std::size_t> under_way;
        std::uint32_t round = 0;     // counts the times that it was idle
        std::deque<Packet> waiting;  // in the socket's buffer
    };

    void submit(std::size_t number);
    void serve(std::uint32_t thread);
    bool begin(std::uint32_t thread);
    void begin_slice(std::uint32_t thread, const udp::SliceData &data);
    void take(std::uint32_t thread, Packet packet);
    void go_on(std::uint32_t thread);
    void tick(std::uint32_t thread, std::uint32_t round);
    void look(std::uint32_t thread);
    void look_later(std::uint32_t thread, std::uint32_t round);
    bool timed_out() const;
    void renew();
    void end_slice(std::size_t number);
    void fail();
    void close();
    udp::SliceData slice_of(std::uint32_t thread, std::size_t number);
    void transmit(std::uint32_t thread, const udp::Slice &slice, std::uint32_t unit);
    std::int64_t renewal_period_ns() const { return kLeaseNs / 3; }

    World &world_;
    const GroupPlan &group_;
    const softswitch::SessionRequest seat_;
    const std::vector<JobValues> &values_;
    const OnEnd on_end_;
    const udp::Timeouts timeouts_;
    udp::Liveness liveness_;
    std::vector<std::unique_ptr<Line>> lines_;  // by thread
    std::vector<Job> jobs_;
    std::size_t jobs_left_;
    std::int64_t progress_ns_ = 0;
    bool over_ = false;
    bool altered_ = false;
};

}  // namespace switchml::simulation
