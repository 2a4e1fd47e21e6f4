// SPDX-License-Identifier: BSD-3-Clause
#include "model_switch.hpp"

#include <array>
#include <optional>

namespace switchml::simulation {

using softswitch::Leases;
using softswitch::SessionTable;
using softswitch::Verdict;

ModelSwitch::ModelSwitch(Agenda &agenda, Network &network, Weakness weakness)
    : agenda_(agenda), network_(network), weakness_(weakness) {
    restart(0);
}

void ModelSwitch::restart(std::int64_t down_ns) {
    up_from_ns_ = agenda_.now_ns() + down_ns;
    sessions_ = std::make_unique<SessionTable>();
    latest_packets_.clear();
    const auto latest_packet = [this](std::uint64_t session) -> std::optional<Leases::Clock::time_point> {
        const auto found = latest_packets_.find(session);
        return found == latest_packets_.end() ? std::nullopt : std::make_optional(found->second);
    };
    leases_ = std::make_unique<Leases>(std::chrono::milliseconds(kLeaseNs / kMs), kMaxSessions, latest_packet);
}

std::string ModelSwitch::admit(const softswitch::SessionRequest &request) {
    const Leases::Admission admission = leases_->admit(request, now());
    for (const std::uint64_t id : admission.displaced) sessions_->close(id);
    if (!admission.refusal.empty()) return admission.refusal;
    if (request.rank == 0) {
        softswitch::SessionOptions options = request.session;
        if (weakness_ == Weakness::kPublishedRules) options.numbering.reset();
        sessions_->open(options);
    }
    sessions_->set_worker(request.session.id, request.rank, request.member);
    return {};
}

Renewal ModelSwitch::renew(std::uint64_t session, std::uint32_t rank) {
    Renewal renewal;
    renewal.lost = leases_->renew(session, rank, now());
    renewal.missing = leases_->missing(session, leases_->length() / 2, now());
    renewal.gone = leases_->missing(session, leases_->length(), now());
    return renewal;
}

void ModelSwitch::end(std::uint64_t session, std::uint32_t rank) {
    if (leases_->end(session, rank)) sessions_->close(session);
}

void ModelSwitch::receive(const Packet &packet) {
    if (!up()) return;
    const auto taken = sessions_->take(packet.from, packet.data.data(), packet.bytes);
    if (!taken) return;
    const std::uint64_t id = taken->route.session->id;
    latest_packets_[id] = now();
    const bool summed = taken->verdict == Verdict::kAccumulated || taken->verdict == Verdict::kCompleted;
    if (packet.altered && summed) altered_.insert(id);
    if (summed) network_.note_taken(packet);
    reply(*taken);
}

// As the data plane: a completed slot's result goes to all, a repeated one to who asked.
void ModelSwitch::reply(const SessionTable::Taken &taken) {
    const bool to_all = taken.verdict == Verdict::kCompleted;
    if (!to_all && taken.verdict != Verdict::kRepeated) return;
    const softswitch::OpenSession &session = *taken.route.session;
    std::array<std::uint8_t, wire::kMaxPacketBytes> packet{};
    wire::Header header = taken.header;
    session.slots.read(header.slot, header.set, header, packet.data() + wire::kHeaderBytes);
    wire::encode(header, packet.data());
    for (std::uint32_t rank = 0; rank < session.workers.size(); ++rank) {
        if (!to_all && rank != taken.route.rank) continue;
        const wire::Endpoint to = softswitch::reply_to(session.workers[rank].member, taken.route.lane);
        network_.send(switch_endpoint(), to, packet.data(), session.packet_bytes);
    }
}

}  // namespace switchml::simulation
