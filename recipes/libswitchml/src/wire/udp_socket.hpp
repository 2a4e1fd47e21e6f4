// SPDX-License-Identifier: BSD-3-Clause
//
// An owned, non-blocking IPv4 UDP socket. Errors are std::system_error whose
// text names the address.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace switchml::wire {

struct Endpoint {
    std::uint32_t ipv4 = 0;  // host order: 10.0.0.1 is 0x0A000001
    std::uint16_t port = 0;
};

// Another number for every endpoint.
constexpr std::uint64_t key_of(const Endpoint &endpoint) { return std::uint64_t{endpoint.ipv4} << 16 | endpoint.port; }

sockaddr_in to_sockaddr(const Endpoint &endpoint);
Endpoint to_endpoint(const sockaddr_in &address);
std::string ipv4_text(std::uint32_t ipv4);
std::string to_text(const Endpoint &endpoint);  // "10.0.0.1:48864"

class UdpSocket {
  public:
    // Port 0 takes a free one; see local().
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
