// SPDX-License-Identifier: BSD-3-Clause
//
// One thread's traffic: it drives slices over its own socket.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "settings.hpp"
#include "udp/liveness.hpp"
#include "udp/retransmission.hpp"
#include "udp/session.hpp"
#include "udp/slice.hpp"
#include "udp/slots.hpp"
#include "udp/transfer.hpp"
#include "wire/datagrams.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::udp {

// Shared by a session's threads.
class Interrupt {
  public:
    Interrupt();
    ~Interrupt();
    Interrupt(const Interrupt &) = delete;
    Interrupt &operator=(const Interrupt &) = delete;

    // Wakes every runner, for good.
    void raise() noexcept;
    bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
    int fd() const noexcept { return fd_; }  // readable from raise() on

    // A job times out when no thread makes progress.
    void note_progress(std::int64_t now_ns) noexcept { progress_ns_.store(now_ns, std::memory_order_relaxed); }
    std::int64_t progress_ns() const noexcept { return progress_ns_.load(std::memory_order_relaxed); }

  private:
    int fd_;
    std::atomic<bool> raised_{false};
    std::atomic<std::int64_t> progress_ns_{0};
};

// Written by the runner's thread, read by any.
struct Traffic {
    std::atomic<std::uint64_t> sent{0};
    std::atomic<std::uint64_t> received{0};
    std::atomic<std::uint64_t> retransmitted{0};
    std::atomic<std::uint64_t> discarded{0};
};

class Runner {
  public:
    // Connects the socket and sizes its buffers to the window.
    Runner(const Settings &settings, std::uint32_t thread, wire::UdpSocket &&socket, const Session &session,
           Interrupt &interrupt, const Liveness &liveness);

    enum class End { kComplete, kInterrupted };

    // Blocks until every result is in. Error ETIMEDOUT without progress for
    // job_timeout_ms, or for a few seconds where workers have gone; EUNREACHABLE
    // likewise where the switch has; std::system_error when the socket fails.
    End run(const SliceData &data);

    const Traffic &traffic() const noexcept { return traffic_; }
    std::uint64_t buffer_wanted() const noexcept { return buffer_wanted_; }
    std::uint64_t buffer_granted() const noexcept { return buffer_granted_; }

  private:
    void transmit(const Slice &slice, std::uint32_t unit);
    void flush();
    void start(Transfer &transfer);
    std::size_t take_results(Transfer &transfer);
    void resend_lost(Transfer &transfer);
    void check_progress(const Slice &slice) const;
    std::string describe_silence(const Slice &slice, std::int64_t silence_ns) const;
    void wait(std::int64_t until_ns) const;

    const Settings &settings_;
    std::uint32_t thread_;
    wire::Endpoint data_plane_;
    Interrupt &interrupt_;
    const Liveness &liveness_;
    wire::UdpSocket socket_;
    SlotRing ring_;
    std::uint64_t buffer_wanted_;
    std::uint64_t buffer_granted_;
    wire::Receiver receiver_;
    wire::Sender sender_;
    std::size_t packet_bytes_;
    std::size_t burst_packets_;
    RoundTrips trips_;
    Patience patience_;
    std::vector<std::uint8_t> burst_;
    std::size_t burst_filled_ = 0;
    std::int64_t now_ns_ = 0;
    Traffic traffic_;
};

}  // namespace switchml::udp
