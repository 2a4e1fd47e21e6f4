// SPDX-License-Identifier: BSD-3-Clause
//
// Stands in for the published library's file of this name (its folder comes
// first among the include paths): the same calls, through the session set-up
// that all our transports share, which has limits of time and says what failed.
#ifndef SWITCHML_GRPC_CLIENT_H_
#define SWITCHML_GRPC_CLIENT_H_

#include <cstdint>
#include <memory>

#include "config.h"
#include "controller_client.hpp"

namespace switchml {

class GrpcClient {
  public:
    explicit GrpcClient(Config &config) : config_(config) {}

    void Barrier(const switchml_proto::BarrierRequest &request, switchml_proto::BarrierResponse *response);
    void Broadcast(const switchml_proto::BroadcastRequest &request, switchml_proto::BroadcastResponse *response);
    void CreateUdpSession(const switchml_proto::UdpSessionRequest &request,
                          switchml_proto::UdpSessionResponse *response);
    void CreateRdmaSession(const switchml_proto::RdmaSessionRequest &request,
                           switchml_proto::RdmaSessionResponse *response);

  private:
    ControllerClient &client();

    Config &config_;
    std::unique_ptr<ControllerClient> client_;  // made by the first call, from which its limits of time count
};

}  // namespace switchml

#endif
