// SPDX-License-Identifier: BSD-3-Clause
//
// The UDP side: one thread that owns the socket, the slots and the counters.
// Other threads reach them only by handing it a function to run between packets,
// so nothing on the packet path is locked or atomic. Each session has slots of its
// own; which one a packet is of follows from the address and port it came from.
#pragma once

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
#include <unordered_map>
#include <vector>

#include "counters.hpp"
#include "faults.hpp"
#include "slot_table.hpp"
#include "sources.hpp"
#include "wire/datagrams.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::softswitch {

struct DataPlaneOptions {
    wire::Endpoint local;
    FaultRates packet_faults;  // of packets received
    FaultRates result_faults;  // of results sent, per worker
    std::uint64_t seed = 0;
};

// What the controller opens.
struct SessionOptions {
    std::uint64_t id;
    std::uint32_t num_workers;
    std::uint32_t packet_numel;
    std::optional<Numbering> numbering;  // nothing: the session of published clients
};

struct Member {
    std::uint32_t ipv4 = 0;
    std::uint16_t first_port = 0;  // 0: the worker has not said, so any port of its address is its own
    std::uint16_t num_ports = 0;
    bool takes_bursts = false;  // results may go to it as one kernel packet (UDP GSO)
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
        std::vector<std::uint8_t> data;
        std::vector<std::uint32_t> withheld;  // per packet, the workers that injected faults keep it from
    };

    struct Worker {
        Member member;
        WorkerCounters counters;
    };

    struct Session {
        SlotTable slots;
        std::vector<Worker> workers;             // by rank
        std::map<std::uint16_t, Batch> batches;  // by reply lane
        std::size_t packet_bytes = 0;
        std::uint32_t packet_numel = 0;
        std::optional<Clock::time_point> latest_packet;
        bool touched = false;  // since the clock was read last
    };

    // Where packets of an address and port belong. The lane is the port's place among the worker's own, or the port
    // itself where the worker did not say which it has: all workers of a session use the same for the same slot.
    struct Route {
        Session *session;
        std::uint32_t rank;
        std::uint16_t lane;
    };

    void serve();
    void run_commands();
    void execute(std::function<void()> command);
    void wait() const;
    static std::vector<WorkerCounters> counters_of(const Session &session);
    std::optional<Route> route_of(const wire::Endpoint &source) const;
    void drop(std::uint64_t session_id);
    void forget_routes(const Session &session);
    void receive(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes);
    void handle(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes);
    void aggregate(const Route &route, const wire::Header &header, const std::uint8_t *data);
    void announce(Session &session, std::uint16_t lane, const wire::Header &header);
    void repeat(const Route &route, wire::Header header);
    void flush(Session &session, std::uint16_t lane, Batch &batch);
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
    Counters counters_;
    std::map<std::uint64_t, std::unique_ptr<Session>> sessions_;  // by id
    std::unique_ptr<Session> spare_;                              // a closed one, for its memory
    std::uint64_t latest_ = 0;                                    // id of the session opened last
    std::unordered_map<std::uint64_t, Route> routes_;             // by address and port
    FaultyLink packet_link_;
    FaultyLink result_link_;
    DroppedSources dropped_sources_;

    int wake_fd_;
    std::mutex mutex_;  // guards the three below
    std::deque<std::packaged_task<void()>> commands_;
    bool stopping_ = false;
    std::string failure_;
    std::thread thread_;
};

}  // namespace switchml::softswitch
