// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>

#include "wire/udp_socket.hpp"

namespace switchml::testing {

constexpr const char *kGet = "GET /metrics HTTP/1.1\r\nHost: switch\r\n\r\n";

// A client that says what it likes; nothing takes longer than 10 s.
class HttpClient {
  public:
    explicit HttpClient(const wire::Endpoint &server)
        : fd_(socket(server.ip.is_ipv4() ? AF_INET : AF_INET6, SOCK_STREAM, 0)) {
        const timeval limit{10, 0};
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        const wire::SocketAddress address(server);
        if (connect(fd_, address.get(), address.size()) != 0) throw std::runtime_error("cannot connect");
    }
    ~HttpClient() { close(fd_); }
    HttpClient(const HttpClient &) = delete;
    HttpClient &operator=(const HttpClient &) = delete;

    HttpClient &say(const std::string &text) {
        send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
        return *this;
    }

    // All that comes until the server closes.
    std::string hear() {
        std::string text;
        char bytes[4096];
        for (;;) {
            const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
            if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) throw std::runtime_error("no end within 10 s");
            if (got <= 0) return text;
            text.append(bytes, static_cast<std::size_t>(got));
        }
    }

  private:
    int fd_;
};

}  // namespace switchml::testing
