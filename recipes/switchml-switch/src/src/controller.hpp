// SPDX-License-Identifier: BSD-3-Clause
//
// The gRPC side: one session at a time, as in published controllers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "data_plane.hpp"
#include "rendezvous.hpp"
#include "switchml.grpc.pb.h"

namespace switchml::softswitch {

struct ControllerOptions {
    std::string address;  // IPv4
    std::uint16_t port;   // 0: a free one
    std::uint32_t max_workers;
    std::function<void()> on_session;  // called after each session that rank 0 opened
};

class Controller final : private switchml_proto::Session::Service, private switchml_proto::Sync::Service {
  public:
    // Listens; std::runtime_error when the port is not to be had.
    Controller(const ControllerOptions &options, DataPlane &plane);
    ~Controller() override;

    std::uint16_t port() const noexcept { return port_; }

  private:
    struct ActiveSession {
        std::uint64_t id = 0;  // 0: none yet
        std::uint32_t num_workers = 0;
        std::uint32_t packet_numel = 0;
        std::map<std::uint32_t, std::uint32_t> address_of;  // by rank
    };

    grpc::Status UdpSession(grpc::ServerContext *context, const switchml_proto::UdpSessionRequest *request,
                            switchml_proto::UdpSessionResponse *response) override;
    grpc::Status RdmaSession(grpc::ServerContext *context, const switchml_proto::RdmaSessionRequest *request,
                             switchml_proto::RdmaSessionResponse *response) override;
    grpc::Status Barrier(grpc::ServerContext *context, const switchml_proto::BarrierRequest *request,
                         switchml_proto::BarrierResponse *response) override;
    grpc::Status Broadcast(grpc::ServerContext *context, const switchml_proto::BroadcastRequest *request,
                           switchml_proto::BroadcastResponse *response) override;

    std::string admit(const switchml_proto::UdpSessionRequest &request);
    std::string check_request(const switchml_proto::UdpSessionRequest &request) const;
    std::string check_member(const switchml_proto::UdpSessionRequest &request) const;
    grpc::Status check_group(std::uint32_t num_workers) const;

    ControllerOptions options_;
    DataPlane &plane_;
    Rendezvous rendezvous_;
    std::mutex mutex_;  // guards session_
    ActiveSession session_;
    std::uint16_t port_ = 0;
    std::unique_ptr<grpc::Server> server_;
};

}  // namespace switchml::softswitch
