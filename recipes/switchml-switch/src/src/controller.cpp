// SPDX-License-Identifier: BSD-3-Clause
#include "controller.hpp"

#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "wire/interfaces.hpp"
#include "wire/packet.hpp"

namespace switchml::softswitch {
namespace {

constexpr const char *kRefusalKey = "switchml-refusal";
constexpr std::chrono::milliseconds kShutdownGrace{200};

std::uint32_t requested_numel(const switchml_proto::UdpSessionRequest &request) {
    const int size_class = static_cast<int>(request.packet_size());
    return size_class >= 0 && size_class <= 3 ? wire::numel_of(static_cast<std::uint8_t>(size_class)) : 0;
}

std::string who(std::uint32_t rank) { return "rank " + std::to_string(rank); }

// Published clients expect zeros, not an error; the reason travels beside them.
grpc::Status refuse(grpc::ServerContext *context, const std::string &reason) {
    std::fprintf(stderr, "switchml-switch: refused a session: %s\n", reason.c_str());
    context->AddTrailingMetadata(kRefusalKey, reason);
    return grpc::Status::OK;
}

grpc::Status to_status(const Outcome &outcome) {
    switch (outcome.kind) {
        case Outcome::Kind::kFailed: return {grpc::StatusCode::ABORTED, outcome.reason};
        case Outcome::Kind::kCancelled: return {grpc::StatusCode::CANCELLED, "the caller has gone"};
        case Outcome::Kind::kDone: break;
    }
    return grpc::Status::OK;
}

}  // namespace

Controller::Controller(const ControllerOptions &options, DataPlane &plane) : options_(options), plane_(plane) {
    const std::string target = options.address + ":" + std::to_string(options.port);
    int selected = 0;
    grpc::ServerBuilder builder;
    // Without this a second switch would share the port and take half of the first one's calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(target, grpc::InsecureServerCredentials(), &selected);
    builder.RegisterService(static_cast<switchml_proto::Session::Service *>(this));
    builder.RegisterService(static_cast<switchml_proto::Sync::Service *>(this));
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || selected == 0) {
        throw std::runtime_error("cannot listen on TCP " + target +
                                 " for the controller; is another switch running there? Choose --controller-port");
    }
    port_ = static_cast<std::uint16_t>(selected);
}

Controller::~Controller() { server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace); }

std::string Controller::check_request(const switchml_proto::UdpSessionRequest &request) const {
    if (request.num_workers() < 1 || request.num_workers() > options_.max_workers) {
        return std::to_string(request.num_workers()) + " workers, expected 1 to " +
               std::to_string(options_.max_workers);
    }
    if (request.rank() >= request.num_workers())
        return who(request.rank()) + " of " + std::to_string(request.num_workers());
    if (request.session_id() == 0) return "session id 0";
    if (request.ipv4() == 0) return who(request.rank()) + " gives no IPv4 address";
    if (requested_numel(request) == 0)
        return who(request.rank()) + " asks for packets that are neither 256 nor 1024 bytes";
    return {};
}

std::string Controller::check_member(const switchml_proto::UdpSessionRequest &request) const {
    if (request.session_id() != session_.id) return who(request.rank()) + " asks for another session than the open one";
    if (request.num_workers() != session_.num_workers) {
        return who(request.rank()) + " expects " + std::to_string(request.num_workers()) + " workers, rank 0 " +
               std::to_string(session_.num_workers);
    }
    if (requested_numel(request) != session_.packet_numel) {
        return who(request.rank()) + " asks for packets of " + std::to_string(requested_numel(request)) +
               " values, rank 0 of " + std::to_string(session_.packet_numel);
    }
    for (const auto &[rank, address] : session_.address_of) {
        if (rank != request.rank() && address == request.ipv4()) {
            return who(request.rank()) + " has the address of rank " + std::to_string(rank) + ", " +
                   wire::ipv4_text(address) + "; workers are told apart by address";
        }
    }
    return {};
}

// Why the worker is refused, "" when it is in.
std::string Controller::admit(const switchml_proto::UdpSessionRequest &request) {
    const std::lock_guard lock(mutex_);
    std::string reason = check_request(request);
    if (!reason.empty()) return reason;
    const bool opens = request.rank() == 0;
    if (opens) {
        session_ = {request.session_id(), request.num_workers(), requested_numel(request), {}};
        plane_.open_session(session_.num_workers, session_.packet_numel);
    }
    reason = check_member(request);
    if (!reason.empty()) return reason;
    session_.address_of[request.rank()] = request.ipv4();
    plane_.set_worker(request.rank(), request.ipv4(), request.takes_bursts());
    return {};
}

grpc::Status Controller::UdpSession(grpc::ServerContext *context, const switchml_proto::UdpSessionRequest *request,
                                    switchml_proto::UdpSessionResponse *response) {
    std::string reason;
    try {
        reason = admit(*request);
    } catch (const std::runtime_error &error) {
        return {grpc::StatusCode::INTERNAL, error.what()};
    }
    if (!reason.empty()) {
        const std::lock_guard lock(mutex_);
        // A stray worker must not harm the session of others.
        if (request->rank() == 0 || request->session_id() == session_.id) rendezvous_.break_session(reason);
        return refuse(context, reason);
    }
    if (request->rank() == 0 && options_.on_session) options_.on_session();
    const wire::Endpoint data = plane_.local();
    response->set_session_id(request->session_id());
    response->set_mac(wire::hardware_address(data.ipv4));
    response->set_ipv4(data.ipv4);
    response->set_data_port(data.port);
    return grpc::Status::OK;
}

grpc::Status Controller::RdmaSession(grpc::ServerContext *context, const switchml_proto::RdmaSessionRequest *request,
                                     switchml_proto::RdmaSessionResponse *) {
    const std::string reason = who(request->rank()) + " asks for RDMA, which the software switch does not speak";
    rendezvous_.break_session(reason);
    return refuse(context, reason);
}

grpc::Status Controller::check_group(std::uint32_t num_workers) const {
    if (num_workers >= 1 && num_workers <= options_.max_workers) return grpc::Status::OK;
    return {grpc::StatusCode::INVALID_ARGUMENT,
            std::to_string(num_workers) + " workers, expected 1 to " + std::to_string(options_.max_workers)};
}

grpc::Status Controller::Barrier(grpc::ServerContext *context, const switchml_proto::BarrierRequest *request,
                                 switchml_proto::BarrierResponse *) {
    if (grpc::Status status = check_group(request->num_workers()); !status.ok()) return status;
    return to_status(rendezvous_.barrier(request->num_workers(), [context] { return context->IsCancelled(); }));
}

grpc::Status Controller::Broadcast(grpc::ServerContext *context, const switchml_proto::BroadcastRequest *request,
                                   switchml_proto::BroadcastResponse *response) {
    if (grpc::Status status = check_group(request->num_workers()); !status.ok()) return status;
    if (request->rank() >= request->num_workers() || request->root() >= request->num_workers()) {
        return {grpc::StatusCode::INVALID_ARGUMENT, who(request->rank()) + " or root " +
                                                        std::to_string(request->root()) + " is not below " +
                                                        std::to_string(request->num_workers())};
    }
    const Outcome outcome =
        rendezvous_.broadcast({request->value(), request->rank(), request->num_workers(), request->root()},
                              [context] { return context->IsCancelled(); });
    response->set_value(outcome.value);
    return to_status(outcome);
}

}  // namespace switchml::softswitch
