// SPDX-License-Identifier: BSD-3-Clause
//
// A controller that admits one worker and a bare UDP socket in place of the
// switch: the test sees and answers every byte itself.
#pragma once

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "switchml.grpc.pb.h"
#include "wire/udp_socket.hpp"

namespace switchml::testing {

// An address of 127/8 that no other process of the test run uses.
inline std::uint32_t private_address(std::uint32_t last) {
    const auto pid = static_cast<std::uint32_t>(getpid());
    return 127U << 24 | (1 + pid % 250) << 16 | (pid / 250 % 250) << 8 | last;
}

class FakeController final : public switchml_proto::Session::Service,
                             public switchml_proto::Sync::Service,
                             public switchml_proto::Lease::Service {
  public:
    explicit FakeController(std::uint32_t address) : data_address(address), address_(address) {
        grpc::ServerBuilder builder;
        builder.AddListeningPort(wire::to_text(address) + ":0", grpc::InsecureServerCredentials(), &port_);
        builder.RegisterService(static_cast<switchml_proto::Session::Service *>(this));
        builder.RegisterService(static_cast<switchml_proto::Sync::Service *>(this));
        builder.RegisterService(static_cast<switchml_proto::Lease::Service *>(this));
        server_ = builder.BuildAndStart();
        if (server_ == nullptr || port_ == 0) throw std::runtime_error("the fake controller cannot listen");
    }

    std::string target() const { return wire::to_text(address_) + ":" + std::to_string(port_); }

    bool refuse = false;          // answer with zeros
    std::uint32_t data_address;   // of the switch that it names
    std::uint32_t data_port = 0;  // 0: as published controllers, which do not say
    std::uint32_t lease_ms = 0;   // likewise
    bool answers_probes = false;  // likewise
    grpc::Status broadcasts_end = grpc::Status::OK;
    std::string calls;  // in order: B barrier, V value broadcast, S session, E its end
    switchml_proto::UdpSessionRequest seen;
    std::function<void()> on_broadcast;
    std::function<void()> on_session;
    std::function<void()> on_renewal;
    std::function<void()> on_end;

  private:
    grpc::Status Barrier(grpc::ServerContext *, const switchml_proto::BarrierRequest *,
                         switchml_proto::BarrierResponse *) override {
        calls += 'B';
        return grpc::Status::OK;
    }

    grpc::Status Broadcast(grpc::ServerContext *, const switchml_proto::BroadcastRequest *request,
                           switchml_proto::BroadcastResponse *response) override {
        calls += 'V';
        if (on_broadcast) on_broadcast();
        response->set_value(request->value());
        return broadcasts_end;
    }

    grpc::Status UdpSession(grpc::ServerContext *, const switchml_proto::UdpSessionRequest *request,
                            switchml_proto::UdpSessionResponse *response) override {
        calls += 'S';
        seen = *request;
        if (on_session) on_session();
        if (refuse) return grpc::Status::OK;
        response->set_session_id(request->session_id());
        response->set_ipv4(data_address);
        response->set_data_port(data_port);
        response->set_lease_ms(lease_ms);
        response->set_answers_probes(answers_probes);
        return grpc::Status::OK;
    }

    grpc::Status Renew(grpc::ServerContext *context, const switchml_proto::LeaseRequest *request,
                       switchml_proto::RenewResponse *response) override {
        if (on_renewal) on_renewal();
        return switchml_proto::Lease::Service::Renew(context, request, response);  // as one that has no leases
    }

    grpc::Status End(grpc::ServerContext *, const switchml_proto::LeaseRequest *request,
                     switchml_proto::EndResponse *) override {
        if (request->session_id() == seen.session_id()) calls += 'E';
        if (on_end) on_end();
        return grpc::Status::OK;
    }

    std::uint32_t address_;
    int port_ = 0;
    std::unique_ptr<grpc::Server> server_;
};

struct Packet {
    std::vector<std::uint8_t> bytes;
    wire::Endpoint source;
};

// The next packet on a socket; throws when none comes within five seconds.
inline Packet next_packet(const wire::UdpSocket &socket) {
    pollfd waited{socket.fd(), POLLIN, 0};
    if (poll(&waited, 1, 5000) != 1) throw std::runtime_error("no packet came");
    Packet packet;
    packet.bytes.resize(4096);
    wire::SocketAddress source;
    socklen_t size = source.size();
    const ssize_t got = recvfrom(socket.fd(), packet.bytes.data(), packet.bytes.size(), 0, source.get(), &size);
    if (got < 0) throw std::runtime_error("a packet could not be received");
    packet.bytes.resize(static_cast<std::size_t>(got));
    packet.source = source.endpoint();
    return packet;
}

inline void send_packet(const wire::UdpSocket &socket, const wire::Endpoint &to,
                        const std::vector<std::uint8_t> &bytes) {
    const wire::SocketAddress address(to);
    if (sendto(socket.fd(), bytes.data(), bytes.size(), 0, address.get(), address.size()) < 0)
        throw std::runtime_error("a packet could not be sent");
}

}  // namespace switchml::testing
