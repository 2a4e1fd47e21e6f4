// SPDX-License-Identifier: BSD-3-Clause
//
// What a worker says of each status that a call of the controller may end with.
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller_failures.hpp"
#include "wire/check.hpp"
#include "wire/udp_socket.hpp"

using namespace switchml;

namespace {

FailedCall barrier_of(std::uint32_t workers) {
    return {"Sync.Barrier", "switch:50099", workers, true, std::chrono::milliseconds(600), false};
}

bool says(const Error &error, const std::string &words) {
    return std::string(error.what()).find(words) != std::string::npos;
}

}  // namespace

TEST(each_status_of_grpc_has_words_of_its_own) {
    const std::vector<std::pair<grpc::StatusCode, switchml_status>> expected{
        {grpc::StatusCode::CANCELLED, SWITCHML_EUNREACHABLE},
        {grpc::StatusCode::UNKNOWN, SWITCHML_EREFUSED},
        {grpc::StatusCode::INVALID_ARGUMENT, SWITCHML_EREFUSED},
        {grpc::StatusCode::DEADLINE_EXCEEDED, SWITCHML_EREFUSED},
        {grpc::StatusCode::NOT_FOUND, SWITCHML_ETIMEDOUT},
        {grpc::StatusCode::ALREADY_EXISTS, SWITCHML_EREFUSED},
        {grpc::StatusCode::PERMISSION_DENIED, SWITCHML_EREFUSED},
        {grpc::StatusCode::RESOURCE_EXHAUSTED, SWITCHML_EREFUSED},
        {grpc::StatusCode::FAILED_PRECONDITION, SWITCHML_EREFUSED},
        {grpc::StatusCode::ABORTED, SWITCHML_EREFUSED},
        {grpc::StatusCode::OUT_OF_RANGE, SWITCHML_EREFUSED},
        {grpc::StatusCode::UNIMPLEMENTED, SWITCHML_EREFUSED},
        {grpc::StatusCode::INTERNAL, SWITCHML_EREFUSED},
        {grpc::StatusCode::UNAVAILABLE, SWITCHML_EUNREACHABLE},
        {grpc::StatusCode::DATA_LOSS, SWITCHML_EREFUSED},
        {grpc::StatusCode::UNAUTHENTICATED, SWITCHML_EREFUSED},
    };
    CHECK_EQ(expected.size(), 16U);  // all but OK: they are numbered from 0 to 16
    std::set<std::string> texts;
    for (const auto &[code, status] : expected) {
        const Error error = call_failure({code, "the reason"}, barrier_of(2));
        CHECK_EQ(error.status(), status);
        CHECK_EQ(std::string(error.what()).rfind("Sync.Barrier at switch:50099: ", 0), 0U);
        CHECK_MENTIONS(error.what(), ": the reason (gRPC: ");
        CHECK(!says(error, "within"));
        CHECK(!says(error, "does not define"));
        texts.insert(error.what());
        CHECK(says(call_failure({code, ""}, barrier_of(2)), " (gRPC: "));
    }
    CHECK_EQ(texts.size(), expected.size());
    CHECK_MENTIONS(call_failure({static_cast<grpc::StatusCode>(99), "odd"}, barrier_of(2)).what(), "does not define");
}

TEST(a_time_limit_is_named_only_where_it_has_passed) {
    FailedCall call = barrier_of(3);
    const grpc::Status late(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
    CHECK_MENTIONS(call_failure(late, call).what(), "a time limit that is not this worker's");
    call.is_over_limit = true;
    const Error missing = call_failure(late, call);
    CHECK_EQ(missing.status(), SWITCHML_ETIMEDOUT);
    CHECK_MENTIONS(missing.what(),
                   "not all of 3 workers opened the session within connect_timeout_ms + job_timeout_ms, 600 ms");
    call.method = "Session.UdpSession";  // which waits for no worker
    call.awaits_workers = false;
    const Error silent = call_failure(late, call);
    CHECK_EQ(silent.status(), SWITCHML_EUNREACHABLE);
    CHECK_MENTIONS(silent.what(), "the controller did not answer within connect_timeout_ms + job_timeout_ms, 600 ms");
    CHECK(!says(call_failure({grpc::StatusCode::UNAVAILABLE, "Socket closed"}, call), "within"));
}

TEST(a_controller_that_has_gone_refuses_connections) {
    const Error error =
        call_failure({grpc::StatusCode::UNAVAILABLE,
                      "failed to connect to all addresses; last error: ipv4:10.0.0.1:50099: Connection refused"},
                     barrier_of(2));
    CHECK_MENTIONS(error.what(), "connections are refused now");
    CHECK_MENTIONS(error.what(), "the connection to the controller was lost");
}

TEST(a_missing_connection_has_its_reason) {
    const auto reason = [](const std::string &words) {
        return connection_failure({grpc::StatusCode::UNAVAILABLE, "failed to connect: " + words});
    };
    CHECK_MENTIONS(reason("Connection refused"), "connections are refused: nothing listens");
    CHECK_MENTIONS(reason("No route to host"), "no route");
    CHECK_MENTIONS(reason("Network is unreachable"), "no route");
    CHECK_MENTIONS(reason("recvmsg:Connection reset by peer"), "does not speak gRPC");
    CHECK_MENTIONS(reason("DNS resolution failed for x"), "not known to the resolver");
    CHECK_EQ(reason("Ssl handshake failed"), "failed to connect: Ssl handshake failed");
    CHECK_EQ(connection_failure({grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"}), "");
}

TEST(a_connection_that_is_tried_has_the_systems_reason) {
    using namespace switchml::wire;
    Settings settings;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    const SocketAddress address({0x7F000001, 0});
    CHECK_EQ(bind(listener, address.get(), address.size()), 0);
    settings.controller_port = local_endpoint(listener).port;
    const auto reason = [&](const char *host) {
        settings.controller_host = host;
        return probe_connection(settings, std::chrono::milliseconds(500));
    };
    CHECK_MENTIONS(reason("127.0.0.1"), "connections are refused: nothing listens");  // bound, and not listening
    CHECK_MENTIONS(reason("255.255.255.255"), "unreachable");
    CHECK_EQ(reason("a..b"), "");
    CHECK_EQ(listen(listener, 1), 0);
    CHECK_EQ(reason("127.0.0.1"), "");
    close(listener);
    CHECK_MENTIONS(reason("127.0.0.1"), "refused");
}

CHECK_MAIN()
