// SPDX-License-Identifier: BSD-3-Clause
//
// The worker's side of the session set-up with a switch controller, over gRPC,
// for every transport that has a switch. What fails is an Error: EUNREACHABLE,
// EREFUSED, ETIMEDOUT when other workers are missing, or
// EABORTED where the opening is cancelled.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "error.hpp"
#include "settings.hpp"
#include "switchml.grpc.pb.h"
#include "wire/address.hpp"

namespace switchml {

class ControllerClient {
  public:
    // The limits of time count from here.
    explicit ControllerClient(const Settings &settings);

    void connect();
    std::uint64_t broadcast(std::uint64_t value);  // rank 0's value, on all workers
    void barrier();

    // Fills in session_id, rank and num_workers.
    switchml_proto::UdpSessionResponse request_session(std::uint64_t session_id,
                                                       switchml_proto::UdpSessionRequest request);
    switchml_proto::RdmaSessionResponse request_session(std::uint64_t session_id,
                                                        switchml_proto::RdmaSessionRequest request);

    struct Renewal {
        std::optional<switchml_proto::RenewResponse> response;
        std::string failure;  // why there is none; "" where no answer came within the limit
    };
    // One call at a time.
    Renewal renew_lease(std::uint64_t session_id, std::chrono::milliseconds limit);
    void cancel_renewal();  // from any thread, for good
    // As far as the controller can be reached at once: a lease that is not ended runs out.
    void end_lease(std::uint64_t session_id);

    // "host:port"
    const std::string &target() const noexcept { return target_; }

  private:
    void await_connection();
    std::string why_no_connection();
    Error unreachable();
    template <class Response, class Prepare>
    grpc::Status call(grpc::ClientContext &context, Response &response, Prepare begin);
    Error silent() const;
    std::unique_ptr<grpc::ClientContext> make_context() const;
    void prepare(grpc::ClientContext &context, std::chrono::nanoseconds limit) const;
    void check(const grpc::Status &status, const std::string &method) const;
    Error refusal(const grpc::ClientContext &context, const wire::IpAddress &local_address) const;

    Settings settings_;
    std::string target_;
    std::string authorization_;  // empty: no token
    std::string session_token_;  // likewise
    std::chrono::steady_clock::time_point connect_deadline_;
    std::chrono::steady_clock::time_point deadline_;
    std::shared_ptr<grpc::Channel> channel_;
    std::unique_ptr<switchml_proto::Session::Stub> session_;
    std::unique_ptr<switchml_proto::Sync::Stub> sync_;
    std::unique_ptr<switchml_proto::Lease::Stub> lease_;
    bool has_answered_ = false;
    std::mutex renewal_mutex_;  // guards the two below
    grpc::ClientContext *renewal_ = nullptr;
    bool no_renewals_ = false;
};

// What the fields ipv4 and ipv6 of a request or response for UDP say.
template <class Message>
wire::IpAddress address_in(const Message &message) {
    return wire::IpAddress::from_message(message.ipv6()).value_or(message.ipv4());
}

// The session id: a random number of rank 0, whose low 18 bits carry the
// parameters that all workers must share and that no message has a field for.
// Published clients send a time stamp; controllers only compare ids.
std::uint64_t make_session_id(std::uint64_t number, const Settings &settings);

// Error ECONFIG when rank 0's parameters in its session id differ from ours.
void check_session_id(std::uint64_t session_id, const Settings &settings);

// Rank 0 makes the id, all get and check it.
std::uint64_t agree_on_session_id(ControllerClient &client, const Settings &settings);

}  // namespace switchml
