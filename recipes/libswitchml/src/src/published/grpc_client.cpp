// SPDX-License-Identifier: BSD-3-Clause
#include "grpc_client.h"

#include "settings.hpp"

namespace switchml {
namespace {

Settings session_settings(const Config &config) {
    const GeneralConfig &general = config.general_;
    Settings settings;
    settings.rank = general.rank;
    settings.num_workers = general.num_workers;
    settings.controller_host = general.controller_ip_str;
    settings.controller_port = general.controller_port;
    settings.num_threads = general.num_worker_threads;
    settings.max_outstanding_packets = general.max_outstanding_packets;
    settings.packet_numel = static_cast<std::uint32_t>(general.packet_numel);
    settings.connect_timeout_ms = general.connect_timeout_ms;
    settings.job_timeout_ms = general.job_timeout_ms;
    settings.job_name = general.job_name;
    resolve_access(process_environment, settings);  // the published configuration has no place for it
    return settings;
}

}  // namespace

ControllerClient &GrpcClient::client() {
    if (client_ == nullptr) {
        auto client = std::make_unique<ControllerClient>(session_settings(config_));
        client->connect();
        client_ = std::move(client);
    }
    return *client_;
}

void GrpcClient::Barrier(const switchml_proto::BarrierRequest &, switchml_proto::BarrierResponse *) {
    client().barrier();
}

// The published client hands out a time stamp here; ours also says what rank 0 was set up with.
void GrpcClient::Broadcast(const switchml_proto::BroadcastRequest &, switchml_proto::BroadcastResponse *response) {
    response->set_value(agree_on_session_id(client(), session_settings(config_)));
}

void GrpcClient::CreateUdpSession(const switchml_proto::UdpSessionRequest &request,
                                  switchml_proto::UdpSessionResponse *response) {
    *response = client().request_session(request.session_id(), request);
}

void GrpcClient::CreateRdmaSession(const switchml_proto::RdmaSessionRequest &request,
                                   switchml_proto::RdmaSessionResponse *response) {
    *response = client().request_session(request.session_id(), request);
}

}  // namespace switchml
