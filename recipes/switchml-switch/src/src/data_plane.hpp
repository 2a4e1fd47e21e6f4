// SPDX-License-Identifier: BSD-3-Clause
//
// The UDP side: one thread that owns the socket, the slots and the counters.
// Other threads reach them only by handing it a function to run between packets,
// so nothing on the packet path is locked or atomic.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "counters.hpp"
#include "slot_table.hpp"
#include "wire/datagrams.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::softswitch {

struct DataPlaneOptions {
    wire::Endpoint local;
    double drop_rate = 0;         // of packets received
    double drop_result_rate = 0;  // of results sent, per worker
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

    // Throws away what has arrived so far, all slots and all workers.
    void open_session(std::uint32_t num_workers, std::uint32_t packet_numel);
    // `takes_bursts`: results may go to it as one kernel packet (UDP GSO).
    void set_worker(std::uint32_t rank, std::uint32_t ipv4, bool takes_bursts = false);
    Counters counters();

    // Why the thread ended by itself, "" while it runs.
    std::string failure();

  private:
    // Results for all workers that share a reply port: built once, sent to each.
    struct Batch {
        std::vector<std::uint8_t> data;
        std::vector<std::uint32_t> withheld;  // per packet, the workers that injected loss keeps it from
    };

    void serve();
    void run_commands();
    void execute(std::function<void()> command);
    void wait() const;
    void handle(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes);
    void aggregate(std::uint32_t rank, const wire::Endpoint &source, const wire::Header &header,
                   const std::uint8_t *data);
    void announce(std::uint16_t port, const wire::Header &header);
    void repeat(std::uint32_t rank, std::uint16_t port, wire::Header header);
    void flush(std::uint16_t port, Batch &batch);
    void send_queued();
    void flush_all();
    bool chance(double rate) { return rate > 0 && uniform_(random_) < rate; }

    DataPlaneOptions options_;
    wire::UdpSocket socket_;
    wire::Receiver receiver_;
    wire::Sender sender_;
    SlotTable slots_;
    Counters counters_;
    std::unordered_map<std::uint32_t, std::uint32_t> rank_of_;  // by IPv4 address
    std::uint32_t takes_bursts_ = 0;                            // bitmap of ranks
    std::map<std::uint16_t, Batch> batches_;                    // by reply port
    std::size_t packet_bytes_ = 0;
    std::mt19937_64 random_;
    std::uniform_real_distribution<double> uniform_{0.0, 1.0};

    int wake_fd_;
    std::mutex mutex_;  // guards the three below
    std::deque<std::packaged_task<void()>> commands_;
    bool stopping_ = false;
    std::string failure_;
    std::thread thread_;
};

}  // namespace switchml::softswitch
