// SPDX-License-Identifier: BSD-3-Clause
#include "leases.hpp"

#include <algorithm>

#include "tokens.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::softswitch {
namespace {

constexpr std::size_t kRememberedEnds = 256;
constexpr const char *kOtherToken = "it has another token";

std::string who(std::uint32_t rank) { return "rank " + std::to_string(rank); }

// What refusals quote travels as metadata, for which gRPC takes printable ASCII only.
std::string job_text(const std::string &job) {
    return job.empty() ? "a job without a name" : "job '" + printable(job) + "'";
}

std::string seconds_text(Leases::Clock::duration time) {
    const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(time).count() / 100;
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string endpoint_text(const Member &member) {
    return member.first_port == 0 ? wire::to_text(member.ip) : wire::to_text({member.ip, member.first_port});
}

// "no session token, unlike": what a worker shows, beside what a job has.
std::string shown(const std::string &token, const std::string &wanted) {
    if (token.empty()) return "no session token, unlike";
    return wanted.empty() ? "a session token, unlike" : "another session token than";
}

// Whether a packet from somewhere could be of both.
bool same_place(const Member &a, const Member &b) {
    if (a.ip != b.ip) return false;
    if (a.first_port == 0 || b.first_port == 0) return true;
    return a.first_port < b.first_port + b.num_ports && b.first_port < a.first_port + a.num_ports;
}

// Whether a process that has the one place proves that nobody has the other any more.
bool replaces(const Member &newer, const Member &older) {
    return same_place(newer, older) && (newer.first_port == 0) == (older.first_port == 0);
}

}  // namespace

Leases::Admission Leases::admit(const SessionRequest &request, Clock::time_point now) {
    Admission admission;
    if (request.rank == 0) admission.refusal = open(request, now, admission.displaced);
    if (!admission.refusal.empty()) return admission;
    admission.refusal = check_member(request, now);
    if (!admission.refusal.empty()) {
        const auto found = sessions_.find(request.session.id);
        // A session without all of its workers cannot come about any more; a stray worker does not harm a whole one.
        if (found == sessions_.end() || found->second.seats.size() == found->second.options.num_workers ||
            !same_token(found->second.token, request.token))
            return admission;
        drop(request.session.id, admission.refusal);
        admission.displaced.push_back(request.session.id);
        return admission;
    }
    displace(request, now, admission.displaced);
    sessions_.at(request.session.id).seats[request.rank] = {request.member, request.owner, now};
    return admission;
}

std::string Leases::open(const SessionRequest &request, Clock::time_point now, std::vector<std::uint64_t> &displaced) {
    if (stands(request.session.id)) return "session " + std::to_string(request.session.id) + " is open already";
    displace(request, now, displaced);
    std::vector<std::uint64_t> expired;
    for (const auto &[id, session] : sessions_) {
        if (now - heard(session) >= length_) expired.push_back(id);
    }
    for (const std::uint64_t id : expired) {
        drop(id, "nothing was heard of it for " + seconds_text(now - heard(sessions_.at(id))) + ", and " +
                     job_text(request.job) + " wanted its place");
        displaced.push_back(id);
    }
    if (sessions_.size() >= max_sessions_) {
        std::string text = "the switch serves ";
        for (const auto &[id, session] : sessions_) {
            text += (&session == &sessions_.begin()->second ? "" : "; ") + describe(session, now);
        }
        return text + "; wait until that ends, or for " + seconds_text(length_) + " after the last sign of it";
    }
    sessions_[request.session.id] = {request.session, request.job, request.token, {}, {}};
    return {};
}

bool Leases::may_replace(const SessionRequest &request, const Session &older, Clock::time_point now) const {
    return older.token.empty() || same_token(older.token, request.token) || now - heard(older) >= length_;
}

void Leases::displace(const SessionRequest &request, Clock::time_point now, std::vector<std::uint64_t> &displaced) {
    std::vector<std::uint64_t> older;
    for (const auto &[id, session] : sessions_) {
        if (id == request.session.id || !may_replace(request, session, now)) continue;
        const bool held = std::any_of(session.seats.begin(), session.seats.end(),
                                      [&](const auto &seat) { return replaces(request.member, seat.second.member); });
        if (held) older.push_back(id);
    }
    for (const std::uint64_t id : older) {
        drop(id, who(request.rank) + " of " + job_text(request.job) + " has the place of one of its workers, " +
                     endpoint_text(request.member));
        displaced.push_back(id);
    }
}

std::string Leases::check_member(const SessionRequest &request, Clock::time_point now) const {
    const auto found = sessions_.find(request.session.id);
    if (found == sessions_.end()) return who(request.rank) + " asks for another session than the open one";
    if (!same_token(found->second.token, request.token)) {
        return who(request.rank) + " shows " + shown(request.token, found->second.token) + " " +
               job_text(found->second.job) + "; SWITCHML_SESSION_TOKEN_FILE must hold the same on all workers";
    }
    const SessionOptions &open = found->second.options;
    if (request.session.num_workers != open.num_workers) {
        return who(request.rank) + " expects " + std::to_string(request.session.num_workers) + " workers, rank 0 " +
               std::to_string(open.num_workers);
    }
    if (request.session.packet_numel != open.packet_numel) {
        return who(request.rank) + " asks for packets of " + std::to_string(request.session.packet_numel) +
               " values, rank 0 of " + std::to_string(open.packet_numel);
    }
    const auto numbering = [](const SessionOptions &options) {
        return options.numbering ? std::to_string(options.numbering->threads) + " threads with a window of " +
                                       std::to_string(options.numbering->window)
                                 : std::string("no numbers through the session (a published client)");
    };
    if (numbering(request.session) != numbering(open))
        return who(request.rank) + " has " + numbering(request.session) + ", rank 0 " + numbering(open);
    return check_place(request, now);
}

std::string Leases::check_place(const SessionRequest &request, Clock::time_point now) const {
    for (const auto &[id, session] : sessions_) {
        const bool own = id == request.session.id;
        for (const auto &[rank, seat] : session.seats) {
            if ((own && rank == request.rank) || !same_place(request.member, seat.member)) continue;
            const bool newer = !own && replaces(request.member, seat.member);
            if (newer && may_replace(request, session, now)) continue;
            return who(request.rank) + " has the address of " + who(rank) +
                   (own ? "" : " of " + job_text(session.job)) + ", " + endpoint_text(seat.member) +
                   (newer ? ", and does not show that job's session token"
                          : "; workers are told apart by address and port");
        }
    }
    return {};
}

Leases::Clock::time_point Leases::heard(const Session &session) const {
    Clock::time_point latest{};
    for (const auto &[rank, seat] : session.seats) latest = std::max(latest, seat.heard);
    return std::max(latest, latest_packet_(session.options.id).value_or(Clock::time_point{}));
}

std::string Leases::describe(const Session &session, Clock::time_point now) const {
    std::string text = job_text(session.job) + " (" + std::to_string(session.options.num_workers) + " workers";
    const auto first = session.seats.find(0);
    if (first != session.seats.end()) {
        text += ", rank 0 at " + endpoint_text(first->second.member);
        if (!first->second.owner.empty()) text += ", " + printable(first->second.owner);
    }
    return text + ", heard of " + seconds_text(now - heard(session)) + " ago)";
}

std::vector<SessionState> Leases::states(Clock::time_point now) const {
    std::vector<SessionState> all;
    all.reserve(sessions_.size());
    for (const auto &[id, session] : sessions_) {
        const auto present = std::count_if(session.seats.begin(), session.seats.end(),
                                           [](const auto &seat) { return !seat.second.ended; });
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(heard(session) + length_ - now);
        all.push_back({id, session.job, session.options.num_workers, static_cast<std::uint32_t>(present),
                       std::max(left, std::chrono::milliseconds(0))});
    }
    return all;
}

void Leases::drop(std::uint64_t session, const std::string &reason) {
    if (sessions_.erase(session) == 0) return;
    ended_.emplace_back(session, reason);
    if (ended_.size() > kRememberedEnds) ended_.pop_front();
}

std::string Leases::renew(std::uint64_t session, std::uint32_t rank, Clock::time_point now, const std::string &token) {
    const auto found = sessions_.find(session);
    if (found != sessions_.end()) {
        if (!same_token(found->second.token, token)) return kOtherToken;
        if (!found->second.begun) found->second.begun = now;
        const auto seat = found->second.seats.find(rank);
        if (seat != found->second.seats.end()) seat->second.heard = now;
        return {};
    }
    const auto ended =
        std::find_if(ended_.rbegin(), ended_.rend(), [&](const auto &end) { return end.first == session; });
    return ended != ended_.rend() ? ended->second : "it does not know it; it was probably started again";
}

std::string Leases::missing(std::uint64_t session, Clock::duration silence, Clock::time_point now) const {
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || !found->second.begun) return {};
    std::string text;
    for (const auto &[rank, seat] : found->second.seats) {
        const auto heard = std::max(seat.heard, *found->second.begun);
        const bool silent = !seat.owner.empty() && now - heard >= silence;
        if (!seat.ended && !silent) continue;
        text += (text.empty() ? "" : ", ") + who(rank) +
                (seat.ended ? " has ended its session" : " was last heard of " + seconds_text(now - heard) + " ago");
    }
    return text;
}

bool Leases::end(std::uint64_t session, std::uint32_t rank, const std::string &token) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || !same_token(found->second.token, token)) return false;
    Session &leased = found->second;
    const auto seat = leased.seats.find(rank);
    if (seat == leased.seats.end()) return false;
    seat->second.ended = true;
    const bool complete = leased.seats.size() == leased.options.num_workers;
    const bool over =
        std::all_of(leased.seats.begin(), leased.seats.end(), [](const auto &s) { return s.second.ended; });
    if (complete && !over) return false;
    drop(session, complete ? "all its workers ended it" : who(rank) + " gave it up before all workers were in");
    return true;
}

}  // namespace switchml::softswitch
