// SPDX-License-Identifier: BSD-3-Clause
//
// The gRPC side: set-up, leases and ends of sessions.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "access.hpp"
#include "data_plane.hpp"
#include "leases.hpp"
#include "rendezvous.hpp"
#include "switchml.grpc.pb.h"
#include "waiting_calls.hpp"

namespace switchml::softswitch {

struct ControllerOptions {
    wire::Endpoint local;  // port 0: a free one
    std::uint32_t max_workers;
    std::uint32_t max_sessions;
    std::chrono::milliseconds lease;
    AccessOptions access;
    std::function<void()> on_session;  // called after each session that rank 0 opened
};

class Controller final : private switchml_proto::Session::Service,
                         private switchml_proto::Sync::Service,
                         private switchml_proto::Lease::Service {
  public:
    // Listens; std::runtime_error when the port is not to be had.
    Controller(const ControllerOptions &options, DataPlane &plane);
    ~Controller() override;

    std::uint16_t port() const noexcept { return port_; }

    std::vector<SessionState> sessions();

  private:
    grpc::Status UdpSession(grpc::ServerContext *context, const switchml_proto::UdpSessionRequest *request,
                            switchml_proto::UdpSessionResponse *response) override;
    grpc::Status RdmaSession(grpc::ServerContext *context, const switchml_proto::RdmaSessionRequest *request,
                             switchml_proto::RdmaSessionResponse *response) override;
    grpc::Status Barrier(grpc::ServerContext *context, const switchml_proto::BarrierRequest *request,
                         switchml_proto::BarrierResponse *response) override;
    grpc::Status Broadcast(grpc::ServerContext *context, const switchml_proto::BroadcastRequest *request,
                           switchml_proto::BroadcastResponse *response) override;

    grpc::Status Renew(grpc::ServerContext *context, const switchml_proto::LeaseRequest *request,
                       switchml_proto::RenewResponse *response) override;
    grpc::Status End(grpc::ServerContext *context, const switchml_proto::LeaseRequest *request,
                     switchml_proto::EndResponse *response) override;

    // The workers of a job that show one token.
    struct Meeting {
        std::string token;
        std::shared_ptr<Rendezvous> place;
    };

    std::string admit(const switchml_proto::UdpSessionRequest &request, const std::string &token);
    std::shared_ptr<Rendezvous> meeting_of(const std::string &job, const std::string &token);
    bool others_wait(const std::string &job, const std::string &token);
    grpc::Status check_group(std::uint32_t num_workers) const;
    grpc::Status check_waiting(const WaitingCalls::Place &place, const std::string &job) const;
    void set_limits(grpc::ServerBuilder &builder) const;
    int most_waiting() const;

    ControllerOptions options_;
    DataPlane &plane_;
    std::mutex mutex_;  // guards the two below
    Leases leases_;
    std::multimap<std::string, Meeting> meetings_;  // by job
    WaitingCalls waiting_;
    Tokens tokens_;
    std::uint16_t port_ = 0;
    std::unique_ptr<grpc::Server> server_;
};

}  // namespace switchml::softswitch
