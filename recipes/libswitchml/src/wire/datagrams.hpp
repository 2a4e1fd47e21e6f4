// SPDX-License-Identifier: BSD-3-Clause
//
// Batched UDP: many packets per system call through recvmmsg and sendmmsg, and
// many per kernel packet through UDP GSO and GRO where the kernel and the route
// have them. Whether GSO works is learnt from the first refusal, so nothing is
// probed and nothing is lost.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "udp_socket.hpp"

namespace switchml::wire {

// Packets of equal size, one behind the other, for one destination.
struct Burst {
    const std::uint8_t *data;
    std::size_t packet_bytes;
    std::size_t count;
    std::optional<Endpoint> to;  // nothing: where the socket is connected to
    bool joinable = true;        // false: never as one kernel packet, the receiver may see it before it is cut apart
};

// The most packets of a size that one burst may hold.
std::size_t max_burst(std::size_t packet_bytes);

class Sender {
  public:
    enum class Offload { kTry, kOff };

    Sender(int fd, Offload offload) : fd_(fd), offload_(offload == Offload::kTry) {}

    // The data must stay as they are until flush has returned. count <= max_burst(packet_bytes).
    void queue(const Burst &burst) { bursts_.push_back(burst); }

    // Hands everything queued to the kernel, in order. What the network cannot
    // take now is dropped (last_error says why): retransmission makes up for it.
    // Returns 0, or the errno of the latest packet that no retransmission can repair
    // (its destination or size is impossible); the others have been sent.
    int flush();

    bool offload() const noexcept { return offload_; }
    int last_error() const noexcept { return last_error_; }  // errno of the latest loss, 0 for none

  private:
    static constexpr std::size_t kMessages = 64;

    struct Message {
        const std::uint8_t *data;
        std::size_t packet_bytes;
        std::size_t count;
        const std::optional<Endpoint> *to;
    };

    void expand();
    std::size_t prepare(std::size_t first);
    void split(std::size_t first);
    void wait_writable() const;

    int fd_;
    bool offload_;
    int last_error_ = 0;
    std::vector<Burst> bursts_;
    std::vector<Message> messages_;
    std::array<mmsghdr, kMessages> headers_{};
    std::array<iovec, kMessages> vectors_{};
    std::array<SocketAddress, kMessages> addresses_{};
    std::array<std::array<std::uint8_t, CMSG_SPACE(sizeof(std::uint16_t))>, kMessages> controls_{};
};

class Receiver {
  public:
    // `offload`: the socket delivers several packets per buffer (enable_receive_offload).
    Receiver(int fd, bool offload);

    // Reads what has arrived, without waiting, and calls sink(source, data, bytes)
    // for each packet. Returns the packets read, 0 for none. A packet longer than
    // any of the protocol arrives cut, still too long to be taken for one.
    template <class Sink>
    std::size_t receive(Sink &&sink) {
        const std::size_t buffers = read();
        std::size_t packets = 0;
        for (std::size_t i = 0; i < buffers; ++i) {
            const Endpoint source = addresses_[i].endpoint();
            const std::uint8_t *data = storage_.get() + i * buffer_bytes_;
            const std::size_t total = headers_[i].msg_len;
            const std::size_t step = segment_bytes(i);
            std::size_t offset = 0;
            do {  // an empty packet is one, too
                sink(source, data + offset, std::min(step, total - offset));
                ++packets;
                offset += step;
            } while (offset < total);
        }
        return packets;
    }

    // errno of the latest error that came back from the network (as ECONNREFUSED), 0 for none.
    int last_error() const noexcept { return last_error_; }

  private:
    std::size_t read();
    std::size_t segment_bytes(std::size_t index) const;

    int fd_;
    bool offload_;
    int last_error_ = 0;
    std::size_t buffer_bytes_;
    std::unique_ptr<std::uint8_t[]> storage_;
    std::vector<mmsghdr> headers_;
    std::vector<iovec> vectors_;
    std::vector<SocketAddress> addresses_;
    std::vector<std::array<std::uint8_t, CMSG_SPACE(sizeof(int))>> controls_;
};

}  // namespace switchml::wire
