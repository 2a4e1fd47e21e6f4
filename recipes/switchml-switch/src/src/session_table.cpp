// SPDX-License-Identifier: BSD-3-Clause
#include "session_table.hpp"

#include <iterator>
#include <utility>

namespace switchml::softswitch {
wire::Endpoint reply_to(const Member &member, std::uint16_t lane) {
    return {member.ip, static_cast<std::uint16_t>(member.first_port + lane)};
}

void SessionTable::open(const SessionOptions &options) {
    close(options.id);
    auto session = spare_ ? std::move(spare_) : std::make_unique<OpenSession>();
    session->id = options.id;
    session->slots.reset(options.num_workers, options.packet_numel, options.numbering);
    session->workers.assign(options.num_workers, {});
    session->packet_bytes = wire::packet_bytes(options.packet_numel);
    session->packet_numel = options.packet_numel;
    sessions_[options.id] = std::move(session);
}

void SessionTable::set_worker(std::uint64_t session_id, std::uint32_t rank, const Member &member) {
    OpenSession &session = *sessions_.at(session_id);
    SessionWorker &worker = session.workers.at(rank);
    forget_routes([&](const Route &route) { return route.session == &session && route.rank == rank; });
    worker.member = member;
    worker.counters.ip = member.ip;
    if (member.first_port == 0) {
        routes_[{member.ip, 0}] = {&session, rank, 0};
        return;
    }
    for (std::uint16_t lane = 0; lane < member.num_ports; ++lane) {
        routes_[reply_to(member, lane)] = {&session, rank, lane};
    }
}

void SessionTable::close(std::uint64_t session_id) {
    const auto found = sessions_.find(session_id);
    if (found == sessions_.end()) return;
    forget_routes([&](const Route &route) { return route.session == found->second.get(); });
    spare_ = std::move(found->second);
    sessions_.erase(found);
}

const OpenSession *SessionTable::find(std::uint64_t session_id) const {
    const auto found = sessions_.find(session_id);
    return found == sessions_.end() ? nullptr : found->second.get();
}

void SessionTable::forget_routes(const std::function<bool(const Route &)> &concerned) {
    latest_route_.reset();
    for (auto route = routes_.begin(); route != routes_.end();) {
        route = concerned(route->second) ? routes_.erase(route) : std::next(route);
    }
}

const std::optional<SessionTable::Route> &SessionTable::route_of(const wire::Endpoint &source) {
    if (!latest_route_ || !(latest_route_->source == source)) latest_route_ = LatestRoute{source, find_route(source)};
    return latest_route_->route;
}

std::optional<SessionTable::Route> SessionTable::find_route(const wire::Endpoint &source) const {
    auto found = routes_.find(source);
    if (found != routes_.end()) return found->second;
    found = routes_.find({source.ip, 0});
    if (found == routes_.end()) return std::nullopt;
    return Route{found->second.session, found->second.rank, source.port};
}

const SessionTable::Route *SessionTable::find_sender(const wire::Endpoint &source, std::size_t bytes, bool has_header) {
    const auto &route = route_of(source);
    if (has_header && !route) {
        ++dropped_.unknown_worker;
        ++dropped_sources_.of(source).unknown_worker;
        return nullptr;
    }
    if (!has_header || bytes != route->session->packet_bytes) {
        ++dropped_.malformed;
        ++dropped_sources_.of(source).malformed;
        return nullptr;
    }
    return &*route;
}

bool SessionTable::answers_probe(const wire::Endpoint &source, std::size_t bytes) {
    return find_sender(source, bytes, true) != nullptr;
}

std::optional<SessionTable::Taken> SessionTable::take(const wire::Endpoint &source, const std::uint8_t *data,
                                                      std::size_t bytes) {
    const auto header = wire::decode(data, bytes);
    const Route *route = find_sender(source, bytes, header.has_value());
    if (route == nullptr) return std::nullopt;
    if (header->slot >= wire::kNumSlots) {
        ++dropped_.bad_slot;
        return std::nullopt;
    }
    OpenSession &session = *route->session;
    WorkerCounters &worker = session.workers[route->rank].counters;
    ++worker.packets;
    worker.bytes += bytes;
    const Verdict verdict = session.slots.update(
        {route->rank, header->slot, header->set, header->e0, header->e1, data + wire::kHeaderBytes, header->packet});
    if (verdict == Verdict::kStale) ++dropped_.stale;
    if (verdict == Verdict::kRepeated) ++worker.retransmitted_results;
    return Taken{*route, *header, verdict};
}

}  // namespace switchml::softswitch
