// SPDX-License-Identifier: BSD-3-Clause
//
// HTTP for a scraper: GET /metrics and nothing else, one request per connection,
// on one thread that never waits for a client. Whoever is slow, sends too much or
// comes when all places are taken loses his connection, not the switch its time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "wire/udp_socket.hpp"

namespace switchml::softswitch {

struct MetricsOptions {
    wire::Endpoint local;                      // port 0: a free one
    std::chrono::milliseconds timeout{5000};   // from a connection's begin to its end
    std::chrono::milliseconds freshness{250};  // a text this young is sent again
};

// The response to a request whose head is whole. `render` is called where that asks for the metrics; what it throws is
// answered as 503.
std::string answer_scrape(const std::string &request, const std::function<std::string()> &render);

class MetricsServer {
  public:
    static constexpr std::size_t kMaxConnections = 16;
    static constexpr std::size_t kMaxRequestBytes = 8192;

    // Listens; std::system_error when the address or port is not to be had. `render` makes the text.
    MetricsServer(const MetricsOptions &options, std::function<std::string()> render);
    ~MetricsServer();
    MetricsServer(const MetricsServer &) = delete;
    MetricsServer &operator=(const MetricsServer &) = delete;

    const wire::Endpoint &local() const noexcept { return local_; }

  private:
    using Clock = std::chrono::steady_clock;

    struct Connection {
        int fd;
        Clock::time_point deadline;
        std::string request;
        std::string response;  // empty until the request is whole
        std::size_t sent = 0;
    };

    void serve();
    void accept_connection();
    bool advance(Connection &connection);
    bool write_response(Connection &connection);
    const std::string &fresh_text();

    MetricsOptions options_;
    std::function<std::string()> render_;
    int listener_;
    int wake_fd_;
    wire::Endpoint local_;
    std::vector<Connection> connections_;
    std::string text_;
    Clock::time_point rendered_{};
    std::thread thread_;
};

}  // namespace switchml::softswitch
