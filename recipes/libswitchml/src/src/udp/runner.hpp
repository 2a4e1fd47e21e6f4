// SPDX-License-Identifier: BSD-3-Clause
//
// One thread's traffic: it drives slices over its own socket.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "settings.hpp"
#include "udp/liveness.hpp"
#include "udp/pipeline.hpp"
#include "udp/retransmission.hpp"
#include "udp/session.hpp"
#include "udp/slice.hpp"
#include "udp/slots.hpp"
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

// A runner's slices, in order.
class SliceQueue {
  public:
    virtual ~SliceQueue() = default;

    // One to begin while the latest is still under way; nothing where there is none, or it has to wait for that.
    virtual std::optional<SliceData> next() = 0;

    // The oldest one under way has all its results.
    virtual void completed() = 0;
};

class Runner {
  public:
    // Connects the socket and sizes its buffers to the window.
    Runner(const Settings &settings, std::uint32_t thread, wire::UdpSocket &&socket, const Session &session,
           Interrupt &interrupt, const Liveness &liveness);

    // Blocks until every result is in, also of what `queue` gives meanwhile, or the
    // interrupt is raised, when what has not completed stays under way. Error
    // ETIMEDOUT without progress for job_timeout_ms, or for a few seconds where
    // workers have gone; EUNREACHABLE likewise where the switch has; EMISMATCH;
    // std::system_error when the socket fails. All of them are the oldest slice's.
    void run(const SliceData &data, SliceQueue &queue);

    const Traffic &traffic() const noexcept { return traffic_; }
    std::uint64_t buffer_wanted() const noexcept { return buffer_wanted_; }
    std::uint64_t buffer_granted() const noexcept { return buffer_granted_; }

  private:
    void transmit(const Slice &slice, std::uint32_t unit);
    void flush();
    void begin(const SliceData &data);
    std::size_t take_results();
    void go_on(SliceQueue &queue);
    void resend_lost();
    void check_progress() const;
    std::string describe_silence(std::int64_t silence_ns) const;
    void wait(std::int64_t until_ns) const;

    const Settings &settings_;
    std::uint32_t thread_;
    wire::Endpoint data_plane_;
    Interrupt &interrupt_;
    const Liveness &liveness_;
    wire::UdpSocket socket_;
    std::uint32_t window_;
    std::uint64_t buffer_wanted_;
    std::uint64_t buffer_granted_;
    wire::Receiver receiver_;
    wire::Sender sender_;
    std::size_t packet_bytes_;
    std::size_t burst_packets_;
    RoundTrips trips_;
    Pipeline pipeline_;
    Timeouts timeouts_;
    std::vector<std::uint8_t> burst_;
    std::size_t burst_filled_ = 0;
    std::int64_t now_ns_ = 0;
    Traffic traffic_;
};

}  // namespace switchml::udp
