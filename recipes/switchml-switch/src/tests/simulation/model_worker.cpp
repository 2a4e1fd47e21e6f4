// SPDX-License-Identifier: BSD-3-Clause
#include "model_worker.hpp"

#include <array>
#include <utility>

#include "error.hpp"

namespace switchml::simulation {
namespace {

constexpr std::size_t kSocketPackets = 64;
constexpr std::int64_t kLookNs = kMs / 4;

udp::RetransmitTimes retransmit_times() { return udp::RetransmitTimes::from_first(kRetransmitNs); }

// A mistake made on demand: a result of the slot and set that a packet of the oldest slice waits for gets that packet's
// number.
void renumber(const udp::Slice &slice, Packet &packet) {
    auto header = wire::decode(packet.data.data(), packet.bytes);
    if (!header) return;
    for (std::uint32_t lane = 0; lane < slice.lanes(); ++lane) {
        if (!slice.outstanding(lane)) continue;
        const udp::Place place = slice.ring().place(slice.unit_of(lane));
        if (place.slot != header->slot || place.set != header->set) continue;
        header->packet = slice.ring().number(slice.unit_of(lane));
        wire::encode(*header, packet.data.data());
    }
}

}  // namespace

ModelWorker::ModelWorker(World &world, const GroupPlan &group, const softswitch::SessionRequest &seat,
                         const std::vector<JobValues> &jobs, OnEnd on_end)
    : world_(world),
      group_(group),
      seat_(seat),
      values_(jobs),
      on_end_(std::move(on_end)),
      timeouts_(udp::Timeouts::of(kJobTimeoutNs, renewal_period_ns(), retransmit_times())),
      jobs_left_(jobs.size()) {
    const std::uint32_t first = wire::first_number(seat.session.id);
    const bool numbered = world.weakness != Weakness::kPublishedRules;
    for (std::uint32_t thread = 0; thread < group.threads; ++thread)
        lines_.push_back(std::make_unique<Line>(group, thread, first, numbered));
    for (const JobValues &job : jobs) {
        const Bits &in = job.inputs[seat.rank].values;
        jobs_.push_back({in, group.in_place ? Bits() : Bits(in.size()), group.threads});
    }
}

void ModelWorker::start() {
    submit(0);
    world_.agenda.after(renewal_period_ns(), [this] { renew(); });
}

void ModelWorker::submit(std::size_t number) {
    if (over_) return;
    for (std::uint32_t thread = 0; thread < group_.threads; ++thread) lines_[thread]->jobs.push_back(number);
    for (std::uint32_t thread = 0; thread < group_.threads && !over_; ++thread) serve(thread);
    if (over_ || number + 1 == jobs_.size()) return;
    Random random(world_.plan.seed + seat_.rank, seat_.session.id + number);
    const std::int64_t gap_ns = random.chance(0.5) ? 0 : random.between(0, 5 * kMs);
    world_.agenda.after(gap_ns, [this, number] { submit(number + 1); });
}

// Goes on with a thread until it has to wait.
void ModelWorker::serve(std::uint32_t thread) {
    Line &line = *lines_[thread];
    while (!over_ && begin(thread)) {
        while (!over_ && !line.pipeline.idle() && !line.waiting.empty()) {
            const Packet packet = line.waiting.front();
            line.waiting.pop_front();
            take(thread, packet);
        }
    }
}

// True when a slice was begun or was empty.
bool ModelWorker::begin(std::uint32_t thread) {
    Line &line = *lines_[thread];
    if (line.jobs.empty() || !line.pipeline.has_room()) return false;
    const std::size_t job = line.jobs.front();
    const udp::SliceData data = slice_of(thread, job);
    if (data.numel == 0 && thread != 0) {
        if (!line.pipeline.idle()) return false;
        line.jobs.pop_front();
        end_slice(job);
        return true;
    }
    line.jobs.pop_front();
    line.under_way.push_back(job);
    begin_slice(thread, data);
    return true;
}

void ModelWorker::begin_slice(std::uint32_t thread, const udp::SliceData &data) {
    Line &line = *lines_[thread];
    const std::int64_t now = world_.agenda.now_ns();
    const bool was_idle = line.pipeline.idle();
    if (was_idle) progress_ns_ = now;
    line.pipeline.begin(data, now, [&](const udp::Slice &slice, std::uint32_t unit) { transmit(thread, slice, unit); });
    if (was_idle) look_later(thread, ++line.round);
}

udp::SliceData ModelWorker::slice_of(std::uint32_t thread, std::size_t number) {
    Job &job = jobs_[number];
    const udp::Part part = udp::part_of(job.in.size(), group_.threads, thread);
    udp::SliceData data;
    data.rank = seat_.rank;
    data.job = {job.in.size(), values_[number].inputs[seat_.rank].dtype, static_cast<std::uint16_t>(number)};
    data.in = job.in.data() + part.first;
    data.out = (group_.in_place ? job.in : job.out).data() + part.first;
    data.numel = part.numel;
    return data;
}

void ModelWorker::transmit(std::uint32_t thread, const udp::Slice &slice, std::uint32_t unit) {
    std::array<std::uint8_t, wire::kMaxPacketBytes> packet{};
    slice.build(unit, packet.data());
    const wire::Endpoint from{seat_.member.ip, static_cast<std::uint16_t>(seat_.member.first_port + thread)};
    world_.network.send(from, switch_endpoint(), packet.data(), wire::packet_bytes(group_.packet_numel));
}

void ModelWorker::receive(const Packet &packet) {
    if (over_) return;
    const auto thread = static_cast<std::uint32_t>(packet.to.port - seat_.member.first_port);
    Line &line = *lines_.at(thread);
    if (line.pipeline.idle()) {
        if (line.waiting.size() < kSocketPackets) line.waiting.push_back(packet);
        return;
    }
    take(thread, packet);
    if (!over_ && !line.pipeline.idle()) look(thread);
    serve(thread);
}

void ModelWorker::take(std::uint32_t thread, Packet packet) {
    Line &line = *lines_[thread];
    if (world_.weakness == Weakness::kStaleResults) renumber(line.pipeline.front(), packet);
    const std::int64_t now = world_.agenda.now_ns();
    try {
        const auto send = [&](const udp::Slice &slice, std::uint32_t unit) { transmit(thread, slice, unit); };
        if (!line.pipeline.take(packet.data.data(), packet.bytes, now, send)) return;
        altered_ = altered_ || packet.altered;
        world_.network.note_taken(packet);
        progress_ns_ = now;
        go_on(thread);
    } catch (const Error &) {  // the jobs differ
        altered_ = altered_ || packet.altered;
        fail();
    }
}

void ModelWorker::go_on(std::uint32_t thread) {
    Line &line = *lines_[thread];
    while (!over_ && !line.pipeline.idle() && line.pipeline.front().complete()) {
        const std::size_t job = line.under_way.front();
        line.under_way.pop_front();
        end_slice(job);
        line.pipeline.drop_front();
    }
}

void ModelWorker::tick(std::uint32_t thread, std::uint32_t round) {
    Line &line = *lines_[thread];
    if (over_ || line.pipeline.idle() || line.round != round) return;
    look(thread);
    if (timed_out()) return fail();
    look_later(thread, round);
}

void ModelWorker::look(std::uint32_t thread) {
    udp::Pipeline &pipeline = lines_[thread]->pipeline;
    const std::int64_t now = world_.agenda.now_ns();
    if (now < pipeline.next_look_ns()) return;
    pipeline.resend_lost(now, [&](const udp::Slice &slice, std::uint32_t unit) { transmit(thread, slice, unit); });
}

void ModelWorker::look_later(std::uint32_t thread, std::uint32_t round) {
    world_.agenda.after(kLookNs, [this, thread, round] { tick(thread, round); });
}

bool ModelWorker::timed_out() const {
    const std::int64_t now = world_.agenda.now_ns();
    if (timeouts_.ended_by_absence(now, progress_ns_, liveness_.gone_since_ns())) return true;
    return timeouts_.ended(now, progress_ns_);
}

void ModelWorker::renew() {
    if (over_) return;
    if (world_.net_switch.up()) {
        const Renewal renewal = world_.net_switch.renew(seat_.session.id, seat_.rank);
        liveness_.answered(renewal.missing, renewal.gone, world_.agenda.now_ns());
        if (!renewal.lost.empty()) return fail();
    }
    world_.agenda.after(renewal_period_ns(), [this] { renew(); });
}

void ModelWorker::end_slice(std::size_t number) {
    Job &job = jobs_[number];
    if (--job.slices_left > 0) return;
    on_end_(number, true, group_.in_place ? job.in : job.out);
    if (--jobs_left_ == 0) close();
}

// The session's end: what has not been reduced fails, and the application gives up.
void ModelWorker::fail() {
    for (std::size_t number = 0; number < jobs_.size(); ++number) {
        if (jobs_[number].slices_left > 0) on_end_(number, false, {});
        jobs_[number].slices_left = 0;
    }
    close();
}

void ModelWorker::close() {
    over_ = true;
    if (world_.net_switch.up()) world_.net_switch.end(seat_.session.id, seat_.rank);
}

void ModelWorker::kill() { over_ = true; }

}  // namespace switchml::simulation
