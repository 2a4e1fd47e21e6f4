// SPDX-License-Identifier: BSD-3-Clause
#include "metrics_server.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

namespace switchml::softswitch {
namespace {

constexpr int kBacklog = 16;
constexpr int kScarcityPauseMs = 100;
constexpr const char *kTextFormat = "text/plain; version=0.0.4; charset=utf-8";
constexpr const char *kPlain = "text/plain; charset=utf-8";

int listen_at(wire::Endpoint &local) {
    const std::string where = "cannot listen on TCP " + wire::to_text(local) + " for metrics";
    const int fd = socket(local.ip.is_ipv4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), where);
    const int yes = 1;
    const wire::SocketAddress address(local);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, address.get(), address.size()) != 0 || listen(fd, kBacklog) != 0) {
        const int error = errno;
        close(fd);
        throw std::system_error(error, std::generic_category(), where);
    }
    local = wire::local_endpoint(fd);
    return fd;
}

struct Response {
    const char *status;
    const char *type;
    std::string body;
};

std::string to_text(const Response &response, bool with_body = true) {
    return std::string("HTTP/1.1 ") + response.status + "\r\nContent-Type: " + response.type +
           "\r\nContent-Length: " + std::to_string(response.body.size()) + "\r\nConnection: close\r\n\r\n" +
           (with_body ? response.body : "");
}

Response respond(const std::string &method, const std::string &target, const std::function<std::string()> &render) {
    if (target.substr(0, target.find('?')) != "/metrics")
        return {"404 Not Found", kPlain, "the counters are at /metrics\n"};
    if (method != "GET" && method != "HEAD")
        return {"405 Method Not Allowed\r\nAllow: GET, HEAD", kPlain, "expected GET\n"};
    try {
        return {"200 OK", kTextFormat, render()};
    } catch (const std::exception &error) {
        return {"503 Service Unavailable", kPlain, std::string(error.what()) + "\n"};
    }
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

std::string answer_scrape(const std::string &request, const std::function<std::string()> &render) {
    const std::string line = request.substr(0, request.find("\r\n"));
    const std::size_t method_end = line.find(' ');
    const std::size_t path_end = line.find(' ', method_end + 1);
    if (method_end == std::string::npos || path_end == std::string::npos ||
        line.compare(path_end + 1, 7, "HTTP/1.") != 0)
        return to_text({"400 Bad Request", kPlain, "expected an HTTP/1.1 request\n"});
    const std::string method = line.substr(0, method_end);
    const std::string target = line.substr(method_end + 1, path_end - method_end - 1);
    return to_text(respond(method, target, render), method != "HEAD");
}

MetricsServer::MetricsServer(const MetricsOptions &options, std::function<std::string()> render)
    : options_(options),
      render_(std::move(render)),
      listener_(listen_at(options_.local)),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      local_(options_.local) {
    thread_ = std::thread([this] { serve(); });
}

MetricsServer::~MetricsServer() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_fd_, &one, sizeof one);
    thread_.join();
    for (const Connection &connection : connections_) close(connection.fd);
    close(listener_);
    close(wake_fd_);
}

void MetricsServer::serve() {
    for (;;) {
        std::vector<pollfd> waited{{wake_fd_, POLLIN, 0}};
        const bool room = connections_.size() < kMaxConnections;
        waited.push_back({room ? listener_ : -1, POLLIN, 0});
        auto next = Clock::time_point::max();
        for (const Connection &connection : connections_) {
            waited.push_back({connection.fd, static_cast<short>(connection.response.empty() ? POLLIN : POLLOUT), 0});
            next = std::min(next, connection.deadline);
        }
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
        poll(waited.data(), waited.size(),
             connections_.empty() ? -1 : static_cast<int>(std::max<std::int64_t>(left, 0)));
        if (waited[0].revents != 0) return;
        const auto now = Clock::now();
        std::size_t place = 2;
        const auto is_over = [&](Connection &connection) {
            const bool ready = waited[place++].revents != 0;
            const bool over = connection.deadline <= now || (ready && !advance(connection));
            if (over) close(connection.fd);
            return over;
        };
        connections_.erase(std::remove_if(connections_.begin(), connections_.end(), is_over), connections_.end());
        if (waited[1].revents != 0) accept_connection();
    }
}

void MetricsServer::accept_connection() {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        connections_.push_back({fd, Clock::now() + options_.timeout, {}, {}, 0});
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The connection stays where it is, so poll would say at once that it is there.
        pollfd stop{wake_fd_, POLLIN, 0};
        poll(&stop, 1, kScarcityPauseMs);
    }
}

// False when the connection is over.
bool MetricsServer::advance(Connection &connection) {
    if (!connection.response.empty()) return write_response(connection);
    char bytes[2048];
    const ssize_t got = recv(connection.fd, bytes, sizeof bytes, 0);
    if (got <= 0) return got < 0 && would_block();
    connection.request.append(bytes, static_cast<std::size_t>(got));
    if (connection.request.find("\r\n\r\n") != std::string::npos) {
        connection.response = answer_scrape(connection.request, [this] { return fresh_text(); });
    } else if (connection.request.size() > kMaxRequestBytes) {
        connection.response =
            to_text({"431 Request Header Fields Too Large", kPlain, "at most 8192 bytes of headers\n"});
    } else {
        return true;
    }
    return write_response(connection);
}

bool MetricsServer::write_response(Connection &connection) {
    const std::string &response = connection.response;
    const ssize_t sent =
        send(connection.fd, response.data() + connection.sent, response.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0) return would_block();
    connection.sent += static_cast<std::size_t>(sent);
    if (connection.sent < response.size()) return true;
    shutdown(connection.fd, SHUT_WR);
    return false;
}

const std::string &MetricsServer::fresh_text() {
    const auto now = Clock::now();
    if (text_.empty() || now - rendered_ >= options_.freshness) {
        text_ = render_();
        rendered_ = now;
    }
    return text_;
}

}  // namespace switchml::softswitch
