// SPDX-License-Identifier: BSD-3-Clause
//
// The UDP side: one thread that owns the socket, the slots and the counters.
// Other threads reach them only by handing it a function to run between packets,
// so nothing on the packet path is locked or atomic.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "counters.hpp"
#include "faults.hpp"
#include "session_table.hpp"
#include "wire/datagrams.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::softswitch {

struct DataPlaneOptions {
    wire::Endpoint local;
    FaultRates packet_faults;  // of packets received
    FaultRates result_faults;  // of results sent, per worker
    std::uint64_t seed = 0;
};

class DataPlane {
  public:
    // Binds; std::system_error when the address or port is not to be had.
    explicit DataPlane(const DataPlaneOptions &options);
    ~DataPlane();
    DataPlane(const DataPlane &) = delete;
    DataPlane &operator=(const DataPlane &) = delete;

    wire::Endpoint local() const { return socket_.local(); }

    using Clock = std::chrono::steady_clock;

    void open_session(const SessionOptions &options);
    void set_worker(std::uint64_t session, std::uint32_t rank, const Member &member);
    void close_session(std::uint64_t session);
    // When the latest packet of the session came; nothing before the first.
    std::optional<Clock::time_point> latest_packet(std::uint64_t session);
    Counters counters();

    // Why the thread ended by itself, "" while it runs.
    std::string failure();

  private:
    // Results for all workers that share a reply port: built once, sent to each.
    struct Batch {
        std::vector<std::uint8_t> data;       // room for the longest burst
        std::vector<std::uint32_t> withheld;  // per packet, the workers that injected faults keep it from
    };

    // What waits to be sent to a session's workers, and when they were last heard of.
    struct Outbox {
        std::map<std::uint16_t, Batch> batches;  // by reply lane
        std::optional<Clock::time_point> latest_packet;
        bool touched = false;  // since the clock was read last
    };

    void serve();
    void run_commands();
    void execute(std::function<void()> command);
    void wait() const;
    static std::vector<WorkerCounters> counters_of(const OpenSession &session);
    void drop(std::uint64_t session_id);
    void receive(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes);
    void handle(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes);
    void announce(const SessionTable::Route &route, const wire::Header &header, Outbox &outbox);
    void repeat(const SessionTable::Route &route, wire::Header header);
    void send_back(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes);
    void flush(const OpenSession &session, std::uint16_t lane, Batch &batch);
    void send_queued();
    void flush_all();
    bool result_is_sent(const wire::Endpoint &to, const std::uint8_t *packet, std::size_t bytes);
    void handle_due_packets();
    void send_due_results();
    int wait_limit_ms() const;

    DataPlaneOptions options_;
    wire::UdpSocket socket_;
    wire::Receiver receiver_;
    wire::Sender sender_;
    // Results that go again and probes that go back, while sender_ has them queued.
    std::deque<std::array<std::uint8_t, wire::kMaxPacketBytes>> single_packets_;
    Counters counters_;
    SessionTable sessions_;
    std::map<std::uint64_t, Outbox> outboxes_;  // by id of the session
    std::uint64_t latest_ = 0;                  // id of the session opened last
    FaultyLink packet_link_;
    FaultyLink result_link_;

    int wake_fd_;
    std::mutex mutex_;  // guards the three below
    std::deque<std::packaged_task<void()>> commands_;
    bool stopping_ = false;
    std::string failure_;
    std::thread thread_;
};

}  // namespace switchml::softswitch
