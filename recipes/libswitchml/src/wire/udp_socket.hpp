// SPDX-License-Identifier: BSD-3-Clause
//
// An owned, non-blocking UDP socket of IPv4 or IPv6. Errors are std::system_error whose
// text names the address.
#pragma once

#include <cstddef>
#include <string>

#include "address.hpp"

namespace switchml::wire {

// Where a socket is bound, or what it is connected from; std::system_error.
Endpoint local_endpoint(int fd);

class UdpSocket {
  public:
    // The family is that of the address. Port 0 takes a free one; see local().
    explicit UdpSocket(const Endpoint &local, int ttl);
    ~UdpSocket();
    UdpSocket(UdpSocket &&other) noexcept;
    UdpSocket &operator=(UdpSocket &&) = delete;
    UdpSocket(const UdpSocket &) = delete;
    UdpSocket &operator=(const UdpSocket &) = delete;

    // Packets from elsewhere are no longer received, and send needs no address.
    void connect(const Endpoint &peer);

    // Asks for room for this many bytes of payload and overhead; what the kernel
    // granted is returned and may be less (net.core.rmem_max, wmem_max).
    std::size_t reserve_receive(std::size_t bytes);
    std::size_t reserve_send(std::size_t bytes);

    // Lets the kernel hand several packets over in one buffer (UDP_GRO); false when it cannot.
    bool enable_receive_offload();

    int fd() const noexcept { return fd_; }
    const Endpoint &local() const noexcept { return local_; }

  private:
    int fd_ = -1;
    Endpoint local_;
};

}  // namespace switchml::wire
