// SPDX-License-Identifier: BSD-3-Clause
#include "controller.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <optional>
#include <stdexcept>

#include "session_request.hpp"
#include "wire/interfaces.hpp"

namespace switchml::softswitch {
namespace {

constexpr const char *kRefusalKey = "switchml-refusal";
constexpr std::chrono::milliseconds kShutdownGrace{200};
constexpr std::size_t kMaxMeetings = 1024;  // before those that nobody waits at are forgotten
// A request for 512 RDMA queue pairs, the longest, has some 6 kB.
constexpr int kMaxMessageBytes = 64 * 1024;
constexpr std::size_t kMaxMemoryBytes = 64 * 1024 * 1024;
// A worker has two calls at a time at most.
constexpr int kMaxCallsPerConnection = 16;
constexpr int kSpareThreads = 64;  // beyond those of waiting calls: for renewals, and for saying no
constexpr const char *kApart =
    " waited for workers that show its session token; those that came under its job's name show another one, or none; "
    "SWITCHML_SESSION_TOKEN_FILE must hold the same on all workers";

// Of "ipv4:10.0.0.7:4711" or "ipv6:%5Bfd00::7%5D:4711": the host.
std::string host_of(const grpc::ServerContext &context) {
    const std::string peer = context.peer();
    return peer.substr(0, peer.rfind(':'));
}

// When a call that waits is about to time out, with some time left for an answer. Only then a worker learns that others
// of its job show another token: earlier, anybody who waits under the job's name could send its workers away.
std::chrono::system_clock::time_point last_moment(const grpc::ServerContext &context) {
    const auto end = context.deadline();
    return end - (end - std::chrono::system_clock::now()) / 20 - std::chrono::milliseconds(200);
}

// Published clients expect zeros, not an error; the reason travels beside them.
grpc::Status refuse(grpc::ServerContext *context, const std::string &reason) {
    std::fprintf(stderr, "switchml-switch: refused a session: %s\n", reason.c_str());
    context->AddTrailingMetadata(kRefusalKey, reason);
    return grpc::Status::OK;
}

grpc::Status to_status(const Outcome &outcome) {
    switch (outcome.kind) {
        case Outcome::Kind::kFailed: return {grpc::StatusCode::ABORTED, outcome.reason};
        case Outcome::Kind::kAbsent: return {grpc::StatusCode::NOT_FOUND, outcome.reason};
        case Outcome::Kind::kCancelled: return {grpc::StatusCode::CANCELLED, "the caller has gone"};
        case Outcome::Kind::kDone: break;
    }
    return grpc::Status::OK;
}

}  // namespace

Controller::Controller(const ControllerOptions &options, DataPlane &plane)
    : options_(options),
      plane_(plane),
      leases_(options.lease, options.max_sessions, [&plane](std::uint64_t id) { return plane.latest_packet(id); }),
      waiting_(most_waiting(), 2 * most_waiting()) {
    if (!options.access.token_file.empty()) tokens_ = Tokens::read(options.access.token_file);
    const std::string target = wire::to_text(options.local);
    int selected = 0;
    grpc::ServerBuilder builder;
    // Without this a second switch would share the port and take half of the first one's calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(target, make_credentials(options.access), &selected);
    set_limits(builder);
    builder.RegisterService(static_cast<switchml_proto::Session::Service *>(this));
    builder.RegisterService(static_cast<switchml_proto::Sync::Service *>(this));
    builder.RegisterService(static_cast<switchml_proto::Lease::Service *>(this));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || selected == 0) {
        throw std::runtime_error("cannot listen on TCP " + target +
                                 " for the controller; is another switch running there? Choose --controller-port" +
                                 (options.access.tls_cert.empty() ? "" : ", and check --tls-cert and --tls-key"));
    }
    port_ = static_cast<std::uint16_t>(selected);
}

Controller::~Controller() { server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace); }

// All workers of all sessions may wait on one host.
int Controller::most_waiting() const { return static_cast<int>(options_.max_sessions * options_.max_workers); }

void Controller::set_limits(grpc::ServerBuilder &builder) const {
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
    grpc::ResourceQuota quota("switchml-switch");
    quota.Resize(kMaxMemoryBytes);
    quota.SetMaxThreads(2 * most_waiting() + kSpareThreads);
    builder.SetResourceQuota(quota);
    // A host that is switched off does not say good-bye: who answers no ping has gone.
    const int half_lease = static_cast<int>(std::max<std::int64_t>(options_.lease.count() / 2, 1));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, half_lease);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, half_lease);
}

std::vector<SessionState> Controller::sessions() {
    const std::lock_guard lock(mutex_);
    return leases_.states(Leases::Clock::now());
}

// The workers of a job meet at one place, those of different names or tokens at different ones.
std::shared_ptr<Rendezvous> Controller::meeting_of(const std::string &job, const std::string &token) {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = meetings_.equal_range(job);
    const auto found =
        std::find_if(first, last, [&](const auto &meeting) { return same_token(meeting.second.token, token); });
    if (found != last) return found->second.place;
    if (meetings_.size() >= kMaxMeetings) {
        for (auto meeting = meetings_.begin(); meeting != meetings_.end();)
            meeting = meeting->second.place.use_count() == 1 ? meetings_.erase(meeting) : std::next(meeting);
    }
    return meetings_.insert({job, {token, std::make_shared<Rendezvous>(options_.lease)}})->second.place;
}

// Whether workers of the job wait that show another token.
bool Controller::others_wait(const std::string &job, const std::string &token) {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = meetings_.equal_range(job);
    return std::any_of(first, last, [&](const auto &meeting) {
        return meeting.second.place.use_count() > 1 && !same_token(meeting.second.token, token);
    });
}

// Why the worker is refused, "" when it is in.
std::string Controller::admit(const switchml_proto::UdpSessionRequest &request, const std::string &token) {
    std::string reason = check_request(request, options_.max_workers);
    if (!reason.empty()) return reason;
    SessionRequest asked = to_session_request(request);
    asked.token = token;
    const wire::IpAddress local = plane_.local().ip;
    if (asked.member.ip.is_ipv4() != local.is_ipv4()) {
        return who(asked.rank) + " sends from " + wire::to_text(asked.member.ip) + ", which cannot reach " +
               wire::to_text(local) + ", this switch";
    }
    const std::lock_guard lock(mutex_);
    const Leases::Admission admission = leases_.admit(asked, Leases::Clock::now());
    for (const std::uint64_t id : admission.displaced) plane_.close_session(id);
    if (!admission.refusal.empty()) return admission.refusal;
    if (asked.rank == 0) plane_.open_session(asked.session);
    plane_.set_worker(asked.session.id, asked.rank, asked.member);
    return {};
}

grpc::Status Controller::UdpSession(grpc::ServerContext *context, const switchml_proto::UdpSessionRequest *request,
                                    switchml_proto::UdpSessionResponse *response) {
    if (grpc::Status status = check_tokens(tokens_, *context); !status.ok()) return status;
    std::string reason;
    try {
        reason = admit(*request, session_token(*context));
    } catch (const std::runtime_error &error) {
        return {grpc::StatusCode::INTERNAL, error.what()};
    }
    if (!reason.empty()) {
        if (request->job().size() <= kMaxNameBytes)
            meeting_of(request->job(), session_token(*context))->break_session(reason);
        return refuse(context, reason);
    }
    if (request->rank() == 0 && options_.on_session) options_.on_session();
    const wire::Endpoint data = plane_.local();
    response->set_session_id(request->session_id());
    response->set_mac(wire::hardware_address(data.ip));
    if (data.ip.is_ipv4()) {
        response->set_ipv4(data.ip.ipv4());
    } else {
        response->set_ipv6(data.ip.to_message());
    }
    response->set_data_port(data.port);
    response->set_lease_ms(static_cast<std::uint32_t>(leases_.length().count()));
    response->set_answers_probes(true);
    return grpc::Status::OK;
}

grpc::Status Controller::RdmaSession(grpc::ServerContext *context, const switchml_proto::RdmaSessionRequest *request,
                                     switchml_proto::RdmaSessionResponse *) {
    if (grpc::Status status = check_tokens(tokens_, *context); !status.ok()) return status;
    const std::string reason = who(request->rank()) + " asks for RDMA, which the software switch does not speak";
    meeting_of({}, session_token(*context))->break_session(reason);
    return refuse(context, reason);
}

grpc::Status Controller::check_group(std::uint32_t num_workers) const {
    if (num_workers >= 1 && num_workers <= options_.max_workers) return grpc::Status::OK;
    return {grpc::StatusCode::INVALID_ARGUMENT,
            std::to_string(num_workers) + " workers, expected 1 to " + std::to_string(options_.max_workers)};
}

grpc::Status Controller::check_waiting(const WaitingCalls::Place &place, const std::string &job) const {
    if (const std::string fault = excess("the job's name", job); !fault.empty())
        return {grpc::StatusCode::INVALID_ARGUMENT, fault};
    if (place.refusal().empty()) return grpc::Status::OK;
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, place.refusal()};
}

grpc::Status Controller::Barrier(grpc::ServerContext *context, const switchml_proto::BarrierRequest *request,
                                 switchml_proto::BarrierResponse *) {
    if (grpc::Status status = check_tokens(tokens_, *context); !status.ok()) return status;
    if (grpc::Status status = check_group(request->num_workers()); !status.ok()) return status;
    if (request->rank() >= request->num_workers()) {
        return {grpc::StatusCode::INVALID_ARGUMENT,
                who(request->rank()) + " is not below " + std::to_string(request->num_workers())};
    }
    const WaitingCalls::Place place(waiting_, host_of(*context));
    if (grpc::Status status = check_waiting(place, request->job()); !status.ok()) return status;
    const auto meeting = meeting_of(request->job(), session_token(*context));
    std::optional<std::uint32_t> rank;
    if (request->has_rank()) rank = request->rank();
    return to_status(meeting->barrier(request->num_workers(), [context] { return context->IsCancelled(); }, rank));
}

grpc::Status Controller::Broadcast(grpc::ServerContext *context, const switchml_proto::BroadcastRequest *request,
                                   switchml_proto::BroadcastResponse *response) {
    if (grpc::Status status = check_tokens(tokens_, *context); !status.ok()) return status;
    if (grpc::Status status = check_group(request->num_workers()); !status.ok()) return status;
    if (request->rank() >= request->num_workers() || request->root() >= request->num_workers()) {
        return {grpc::StatusCode::INVALID_ARGUMENT, who(request->rank()) + " or root " +
                                                        std::to_string(request->root()) + " is not below " +
                                                        std::to_string(request->num_workers())};
    }
    const WaitingCalls::Place place(waiting_, host_of(*context));
    if (grpc::Status status = check_waiting(place, request->job()); !status.ok()) return status;
    const std::string token = session_token(*context);
    const auto late = last_moment(*context);
    bool others = false;
    bool apart = false;
    const auto leaves = [&] {
        others = others || others_wait(request->job(), token);
        apart = others && std::chrono::system_clock::now() >= late;
        return apart || context->IsCancelled();
    };
    const Outcome outcome =
        meeting_of(request->job(), token)
            ->broadcast({request->value(), request->rank(), request->num_workers(), request->root()}, leaves);
    response->set_value(outcome.value);
    if (apart) return {grpc::StatusCode::PERMISSION_DENIED, who(request->rank()) + kApart};
    return to_status(outcome);
}

grpc::Status Controller::Renew(grpc::ServerContext *context, const switchml_proto::LeaseRequest *request,
                               switchml_proto::RenewResponse *response) {
    if (grpc::Status status = check_tokens(tokens_, *context); !status.ok()) return status;
    const auto now = Leases::Clock::now();
    const std::lock_guard lock(mutex_);
    response->set_lost(leases_.renew(request->session_id(), request->rank(), now, session_token(*context)));
    if (!response->lost().empty()) return grpc::Status::OK;
    response->set_missing(leases_.missing(request->session_id(), leases_.length() / 2, now));
    response->set_gone(leases_.missing(request->session_id(), leases_.length(), now));
    return grpc::Status::OK;
}

grpc::Status Controller::End(grpc::ServerContext *context, const switchml_proto::LeaseRequest *request,
                             switchml_proto::EndResponse *) {
    if (grpc::Status status = check_tokens(tokens_, *context); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    if (leases_.end(request->session_id(), request->rank(), session_token(*context)))
        plane_.close_session(request->session_id());
    return grpc::Status::OK;
}

}  // namespace switchml::softswitch
