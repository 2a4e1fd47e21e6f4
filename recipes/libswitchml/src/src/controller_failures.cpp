// SPDX-License-Identifier: BSD-3-Clause
#include "controller_failures.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

namespace switchml {
namespace {

struct Words {
    switchml_status status;
    const char *name;  // of gRPC's status
    const char *text;
};

// https://grpc.github.io/grpc/core/md_doc_statuscodes.html
Words words_for(grpc::StatusCode code) {
    switch (code) {
        case grpc::StatusCode::CANCELLED:
            return {SWITCHML_EUNREACHABLE, "CANCELLED",
                    "the controller cancelled the call, as one that is stopped does"};
        case grpc::StatusCode::UNKNOWN: return {SWITCHML_EREFUSED, "UNKNOWN", "the controller failed"};
        case grpc::StatusCode::INVALID_ARGUMENT:
            return {SWITCHML_EREFUSED, "INVALID_ARGUMENT", "the controller does not take what this worker asks for"};
        case grpc::StatusCode::DEADLINE_EXCEEDED:
            return {SWITCHML_EREFUSED, "DEADLINE_EXCEEDED",
                    "the call was ended by a time limit that is not this worker's"};
        case grpc::StatusCode::NOT_FOUND: return {SWITCHML_ETIMEDOUT, "NOT_FOUND", "another worker is missing"};
        case grpc::StatusCode::ALREADY_EXISTS:
            return {SWITCHML_EREFUSED, "ALREADY_EXISTS", "the controller has this worker or session already"};
        case grpc::StatusCode::PERMISSION_DENIED:
            return {SWITCHML_EREFUSED, "PERMISSION_DENIED", "the controller does not let this worker in"};
        case grpc::StatusCode::RESOURCE_EXHAUSTED:
            return {SWITCHML_EREFUSED, "RESOURCE_EXHAUSTED", "the controller had no room for the call, tried 5 times"};
        case grpc::StatusCode::FAILED_PRECONDITION:
            return {SWITCHML_EREFUSED, "FAILED_PRECONDITION", "the controller is not ready for the call"};
        case grpc::StatusCode::ABORTED:
            return {SWITCHML_EREFUSED, "ABORTED", "the controller ended the opening of the session"};
        case grpc::StatusCode::OUT_OF_RANGE:
            return {SWITCHML_EREFUSED, "OUT_OF_RANGE", "a value of this worker is out of the controller's range"};
        case grpc::StatusCode::UNIMPLEMENTED:
            return {
                SWITCHML_EREFUSED, "UNIMPLEMENTED",
                "what answers there does not know this call; check that SWITCHML_CONTROLLER names the controller of a "
                "SwitchML switch, and its version"};
        case grpc::StatusCode::INTERNAL:
            return {SWITCHML_EREFUSED, "INTERNAL", "the controller or the connection to it is broken"};
        case grpc::StatusCode::UNAVAILABLE:
            return {SWITCHML_EUNREACHABLE, "UNAVAILABLE", "the connection to the controller was lost"};
        case grpc::StatusCode::DATA_LOSS: return {SWITCHML_EREFUSED, "DATA_LOSS", "the controller lost data"};
        case grpc::StatusCode::UNAUTHENTICATED:
            return {SWITCHML_EREFUSED, "UNAUTHENTICATED", "the controller does not know this worker"};
        default: return {SWITCHML_EREFUSED, "a status that gRPC does not define", "the controller failed"};
    }
}

bool mentions(const std::string &text, const char *words) { return text.find(words) != std::string::npos; }

// The system's words are in gRPC's own: https://man7.org/linux/man-pages/man2/connect.2.html
std::string meaning_of(const std::string &said) {
    for (const auto &[mark, meaning] : {
             std::pair{"Connection refused", "connections are refused: nothing listens on that port"},
             {"No route to host", "there is no route to it (No route to host)"},
             {"Network is unreachable", "there is no route to it (Network is unreachable)"},
             {"Connection reset by peer", "connections are reset, as by a port that does not speak gRPC or wants TLS"},
             {"DNS resolution failed", "its name is not known to the resolver (DNS resolution failed)"},
         }) {
        if (mentions(said, mark)) return meaning;
    }
    return said;
}

// What the system says of a connection to one address: 0 where there is one, ETIMEDOUT where nothing came back.
int try_to_connect(const addrinfo &address, std::chrono::milliseconds limit) {
    const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    int failure = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
    if (failure == EINPROGRESS) {
        pollfd connecting{fd, POLLOUT, 0};
        socklen_t size = sizeof failure;
        if (poll(&connecting, 1, static_cast<int>(limit.count())) != 1) {
            failure = ETIMEDOUT;
        } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0) {
            failure = errno;
        }
    }
    close(fd);
    return failure;
}

}  // namespace

Error call_failure(const grpc::Status &status, const FailedCall &call) {
    const std::string where = call.method + " at " + call.target + ": ";
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && call.is_over_limit) {
        const std::string limit = "connect_timeout_ms + job_timeout_ms, " + std::to_string(call.limit.count()) + " ms";
        if (!call.awaits_workers)
            return {SWITCHML_EUNREACHABLE, where + "the controller did not answer within " + limit};
        return {SWITCHML_ETIMEDOUT, where + "not all of " + std::to_string(call.num_workers) +
                                        " workers opened the session within " + limit};
    }
    const Words words = words_for(status.error_code());
    std::string text = where + words.text;
    if (mentions(status.error_message(), "Connection refused")) {  // by now: it was there when the opening began
        text += ", and connections are refused now: nothing listens on that port any longer";
    } else if (!status.error_message().empty()) {
        text += ": " + status.error_message();
    }
    return {words.status, text + " (gRPC: " + words.name + ")"};
}

std::string connection_failure(const grpc::Status &status) {
    return status.error_code() == grpc::StatusCode::UNAVAILABLE ? meaning_of(status.error_message()) : "";
}

std::string probe_connection(const Settings &settings, std::chrono::milliseconds limit) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    const std::string port = std::to_string(settings.controller_port);
    if (getaddrinfo(settings.controller_host.c_str(), port.c_str(), &hints, &found) != 0) return {};  // gRPC says it
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    int failure = 0;
    for (const addrinfo *address = found; address != nullptr; address = address->ai_next) {
        failure = try_to_connect(*address, limit);
        if (failure == 0 || failure == ETIMEDOUT) return {};
    }
    return meaning_of(std::generic_category().message(failure));
}

}  // namespace switchml
