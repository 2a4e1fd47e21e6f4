// SPDX-License-Identifier: BSD-3-Clause
//
// Clients that ask too much of the controller get errors, and so do those that ask for what is others' and those that
// wait for one that stops half-way; jobs go on.
#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "jobs.hpp"
#include "switchml.grpc.pb.h"
#include "wire/udp_socket.hpp"

using namespace switchml;
using namespace switchml::testing;

namespace {

// A connection over which nothing is said.
class SilentClient {
  public:
    explicit SilentClient(const wire::Endpoint &server) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
        const wire::SocketAddress address(server);
        if (connect(fd_, address.get(), address.size()) != 0) throw std::runtime_error("cannot connect");
    }
    ~SilentClient() { close(fd_); }
    SilentClient(const SilentClient &) = delete;
    SilentClient &operator=(const SilentClient &) = delete;

  private:
    int fd_;
};

std::shared_ptr<grpc::Channel> connect_to(const Switch &net) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    return grpc::CreateCustomChannel(net.controller, grpc::InsecureChannelCredentials(), arguments);
}

grpc::Status enter_barrier(const Switch &net, const std::string &job) {
    const auto stub = switchml_proto::Sync::NewStub(connect_to(net));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    switchml_proto::BarrierRequest request;
    request.set_num_workers(1);
    request.set_job(job);
    switchml_proto::BarrierResponse response;
    return stub->Barrier(&context, request, &response);
}

// Barrier calls that nobody answers, over several connections, until destroyed.
class Flood {
  public:
    Flood(const Switch &net, std::size_t connections, std::size_t calls_each) {
        for (std::size_t connection = 0; connection < connections; ++connection) {
            stubs_.push_back(switchml_proto::Sync::NewStub(connect_to(net)));
            for (std::size_t i = 0; i < calls_each; ++i) start(*stubs_.back());
        }
    }

    ~Flood() {
        for (auto &call : calls_) call->context.TryCancel();
        for (std::size_t left = calls_.size() - ended_; left > 0; --left) next(Clock::time_point::max());
    }

    Flood(const Flood &) = delete;
    Flood &operator=(const Flood &) = delete;

    // The status of a call that has ended; OK when none did in time.
    grpc::Status refused_within(std::chrono::seconds limit) { return next(Clock::now() + limit); }

  private:
    struct Call {
        grpc::ClientContext context;
        switchml_proto::BarrierResponse response;
        grpc::Status status;
        std::unique_ptr<grpc::ClientAsyncResponseReader<switchml_proto::BarrierResponse>> reader;
    };

    void start(switchml_proto::Sync::Stub &stub) {
        auto call = std::make_unique<Call>();
        switchml_proto::BarrierRequest request;
        request.set_num_workers(32);
        request.set_job("flood-" + std::to_string(calls_.size()));
        call->reader = stub.AsyncBarrier(&call->context, request, &queue_);
        call->reader->Finish(&call->response, &call->status, call.get());
        calls_.push_back(std::move(call));
    }

    grpc::Status next(Clock::time_point limit) {
        void *tag = nullptr;
        bool ok = false;
        const auto wall =
            limit == Clock::time_point::max()
                ? std::chrono::system_clock::time_point::max()
                : std::chrono::system_clock::now() +
                      std::chrono::duration_cast<std::chrono::system_clock::duration>(limit - Clock::now());
        if (queue_.AsyncNext(&tag, &ok, wall) != grpc::CompletionQueue::GOT_EVENT) return grpc::Status::OK;
        ++ended_;
        return static_cast<Call *>(tag)->status;
    }

    grpc::CompletionQueue queue_;
    std::vector<std::unique_ptr<switchml_proto::Sync::Stub>> stubs_;
    std::vector<std::unique_ptr<Call>> calls_;
    std::size_t ended_ = 0;
};

// With a limit of time, and the session's token unless that is "".
void prepare(grpc::ClientContext &context, const std::string &token, std::chrono::seconds limit) {
    context.set_deadline(std::chrono::system_clock::now() + limit);
    if (!token.empty()) context.AddMetadata("switchml-session-token", token);
}

struct Claim {
    std::uint64_t id;
    std::uint32_t ipv4;
    std::string job;
    std::string token = {};
    std::uint32_t rank = 0;
    std::uint32_t num_workers = 1;
};

// Asks for a worker's part in a session; gives what the switch says beside its answer.
std::string refusal_of(const Switch &net, const Claim &claim) {
    const auto stub = switchml_proto::Session::NewStub(connect_to(net));
    grpc::ClientContext context;
    prepare(context, claim.token, std::chrono::seconds(20));
    switchml_proto::UdpSessionRequest request;
    request.set_session_id(claim.id);
    request.set_rank(claim.rank);
    request.set_num_workers(claim.num_workers);
    request.set_ipv4(claim.ipv4);
    request.set_packet_size(switchml_proto::PACKET_256_BYTES);
    request.set_job(claim.job);
    switchml_proto::UdpSessionResponse response;
    const grpc::Status status = stub->UdpSession(&context, request, &response);
    if (!status.ok()) return "no answer: " + status.error_message();
    const auto reason = context.GetServerTrailingMetadata().find("switchml-refusal");
    if (reason == context.GetServerTrailingMetadata().end()) return {};
    return {reason->second.data(), reason->second.size()};
}

// Renews rank 0's lease; gives why it is none, "" where it is one.
std::string lost_lease(const Switch &net, std::uint64_t session, const std::string &token) {
    const auto stub = switchml_proto::Lease::NewStub(connect_to(net));
    grpc::ClientContext context;
    prepare(context, token, std::chrono::seconds(20));
    switchml_proto::LeaseRequest request;
    request.set_session_id(session);
    switchml_proto::RenewResponse response;
    CHECK(stub->Renew(&context, request, &response).ok());
    return response.lost();
}

// Ends it for rank 0.
void end_lease(const Switch &net, std::uint64_t session, const std::string &token) {
    const auto stub = switchml_proto::Lease::NewStub(connect_to(net));
    grpc::ClientContext context;
    prepare(context, token, std::chrono::seconds(20));
    switchml_proto::LeaseRequest request;
    request.set_session_id(session);
    switchml_proto::EndResponse response;
    CHECK(stub->End(&context, request, &response).ok());
}

// One of two workers of a job that begin to open a session, which takes them five seconds at most.
std::future<grpc::Status> meet(const Switch &net, const std::string &job, std::uint32_t rank,
                               const std::string &token) {
    return std::async(std::launch::async, [&net, job, rank, token] {
        const auto stub = switchml_proto::Sync::NewStub(connect_to(net));
        grpc::ClientContext context;
        prepare(context, token, std::chrono::seconds(5));
        switchml_proto::BroadcastRequest request;
        request.set_rank(rank);
        request.set_num_workers(2);
        request.set_job(job);
        switchml_proto::BroadcastResponse response;
        return stub->Broadcast(&context, request, &response);
    });
}

void check_serves(const Switch &net) {
    Workers workers(net, 2);
    check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 1, 1000);
}

}  // namespace

TEST(a_message_of_100_kilobytes_or_megabytes_is_refused) {
    Switch net;
    for (const std::size_t bytes : {100 << 10, 100 << 20}) {
        CHECK_EQ(enter_barrier(net, std::string(bytes, 'x')).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    }
    check_serves(net);
}

TEST(a_long_name_is_refused_with_its_length) {
    Switch net;
    const grpc::Status status = enter_barrier(net, std::string(1025, 'x'));
    CHECK_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    CHECK_MENTIONS(status.error_message(), "1025 bytes, expected at most 1024");
    CHECK(enter_barrier(net, std::string(1024, 'x')).ok());
}

TEST(a_refusal_quotes_names_of_any_characters) {
    Switch net({"--max-sessions", "1"});
    const std::string name = "caf\u00e9\n\x1b[2J\\";
    CHECK_EQ(refusal_of(net, {1, 0x7F000002, name}), "");
    CHECK_MENTIONS(refusal_of(net, {2, 0x7F000003, "next"}), "job 'caf\\xc3\\xa9\\x0a\\x1b[2J\\\\'");
}

TEST(a_session_is_for_those_who_show_its_token) {
    Switch net;
    const std::string token = "0123456789abcdef-ours";
    CHECK_EQ(refusal_of(net, {7, 0x7F000002, "ours", token, 0, 2}), "");
    for (const std::string &other : {std::string(), token + "-no", std::string("0123456789abcdef-0urs")}) {
        CHECK_MENTIONS(refusal_of(net, {7, 0x7F000003, "ours", other, 1, 2}), "SWITCHML_SESSION_TOKEN_FILE");
        CHECK_MENTIONS(refusal_of(net, {8, 0x7F000002, "theirs", other}), "does not show that job's session token");
        CHECK_MENTIONS(lost_lease(net, 7, other), "another token");
        end_lease(net, 7, other);
    }
    CHECK_MENTIONS(refusal_of(net, {7, 0x7F000003, "ours", "short", 1, 2}), "must be 16 to 1024 printable");
    CHECK_EQ(refusal_of(net, {7, 0x7F000003, "ours", token, 1, 2}), "");
    CHECK_EQ(lost_lease(net, 7, token), "");
    CHECK(net.stop().find(token) == std::string::npos);
}

TEST(workers_of_a_job_with_different_tokens_do_not_meet) {
    Switch net;
    const std::string token = "0123456789abcdef-ours";
    std::future<grpc::Status> apart[] = {meet(net, "one", 0, token), meet(net, "one", 1, ""),
                                         meet(net, "two", 0, token), meet(net, "two", 1, "0123456789abcdef-theirs")};
    std::future<grpc::Status> together[] = {meet(net, "three", 0, token), meet(net, "three", 1, token)};
    for (auto &call : together) CHECK(call.get().ok());
    for (auto &call : apart) {
        const grpc::Status status = call.get();
        CHECK_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
        CHECK_MENTIONS(status.error_message(), "waited for workers that show its session token");
        CHECK(status.error_message().find("0123456789abcdef") == std::string::npos);
    }
}

TEST(a_worker_that_dies_while_the_session_opens_is_named_within_the_lease) {
    Switch net({"--lease-ms", "1000"});
    const auto start = Clock::now();
    auto waiting = open_failure_async(net, 0, 2, patient);
    {
        const auto stub = switchml_proto::Sync::NewStub(connect_to(net));
        grpc::ClientContext context;
        switchml_proto::BroadcastRequest request;
        request.set_rank(1);
        request.set_num_workers(2);
        request.set_job("dead");
        switchml_proto::BroadcastResponse response;
        CHECK(stub->Broadcast(&context, request, &response).ok());
    }
    const OpenFailed failure = waiting.get();
    CHECK_EQ(failure.status, SWITCHML_ETIMEDOUT);
    CHECK_MENTIONS(failure.what(), "rank 1 did not go on with opening the session");
    CHECK(seconds_since(start) < 10);  // of 30 s and more that the worker would wait
    check_serves(net);
}

TEST(thousands_of_calls_over_one_connection_leave_room_for_others) {
    Switch net;
    const Flood flood(net, 1, 3000);
    check_serves(net);
}

TEST(one_host_cannot_take_all_threads) {
    Switch net({"--max-workers", "32", "--max-sessions", "2"});
    std::future<void> served;
    {
        Flood flood(net, 40, 16);
        const grpc::Status status = flood.refused_within(std::chrono::seconds(60));
        CHECK_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
        served = std::async(std::launch::async, [&net] { check_serves(net); });
        CHECK(served.wait_for(std::chrono::milliseconds(300)) == std::future_status::timeout);
    }
    served.get();
}

// As a login's or a service manager's limit of 1024 files would do for more connections than that.
TEST(a_switch_takes_more_connections_than_its_first_limit_of_files) {
    rlimit usual{};
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
    const rlimit low{64, usual.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    const Switch net;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
    const std::size_t colon = net.controller.find(':');
    const wire::Endpoint controller{wire::IpAddress::parse(net.controller.substr(0, colon)).value(),
                                    static_cast<std::uint16_t>(std::stoi(net.controller.substr(colon + 1)))};
    std::vector<std::unique_ptr<SilentClient>> silent;
    for (int i = 0; i < 100; ++i) silent.push_back(std::make_unique<SilentClient>(controller));
    check_serves(net);
}

int main(int argc, char **argv) { return run_tests(argc, argv); }
