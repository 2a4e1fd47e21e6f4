// SPDX-License-Identifier: BSD-3-Clause
//
// IPv4 and IPv6 addresses as one kind of value, and what the system calls take
// for them. IPv6 addresses that need an interface (link-local) are not covered.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace switchml::wire {

class IpAddress {
  public:
    using Bytes = std::array<std::uint8_t, 16>;  // as on the wire

    // Host order: 10.0.0.1 is 0x0A000001. Kept as the IPv6 address ::ffff:10.0.0.1 that stands for it.
    constexpr IpAddress(std::uint32_t ipv4 = 0) : low_(kMapped | ipv4) {}  // NOLINT(google-explicit-constructor)
    static IpAddress from_ipv6(const Bytes &bytes);
    // The 16 bytes of an IPv6 address, as messages hold them; nothing for another length.
    static std::optional<IpAddress> from_message(const std::string &bytes);
    std::string to_message() const;
    // Nothing where the text is no numeric address of either kind.
    static std::optional<IpAddress> parse(const std::string &text);

    constexpr bool is_ipv4() const noexcept { return high_ == 0 && low_ >> 32 == kMapped >> 32; }
    constexpr std::uint32_t ipv4() const noexcept { return static_cast<std::uint32_t>(low_); }
    Bytes ipv6() const;
    // 0.0.0.0 or ::, which names no host.
    constexpr bool is_unspecified() const noexcept { return high_ == 0 && (low_ == 0 || low_ == kMapped); }
    bool is_loopback() const noexcept;
    // 0.0.0.0 or ::
    IpAddress unspecified() const { return is_ipv4() ? IpAddress() : from_ipv6({}); }

    // Of the value, for hash tables.
    std::size_t hash() const noexcept;

    friend constexpr bool operator==(const IpAddress &a, const IpAddress &b) {
        return a.high_ == b.high_ && a.low_ == b.low_;
    }
    friend constexpr bool operator!=(const IpAddress &a, const IpAddress &b) { return !(a == b); }

  private:
    static constexpr std::uint64_t kMapped = 0xFFFFULL << 32;

    std::uint64_t high_ = 0;
    std::uint64_t low_;
};

struct Endpoint {
    IpAddress ip;
    std::uint16_t port = 0;

    friend constexpr bool operator==(const Endpoint &a, const Endpoint &b) { return a.ip == b.ip && a.port == b.port; }
};

struct EndpointHash {
    std::size_t operator()(const Endpoint &endpoint) const noexcept { return endpoint.ip.hash() * 31 + endpoint.port; }
};

std::string to_text(const IpAddress &address);  // "10.0.0.1", "fd00::1"
std::string to_text(const Endpoint &endpoint);  // "10.0.0.1:48864", "[fd00::1]:48864"

// A sockaddr of either family.
class SocketAddress {
  public:
    SocketAddress() = default;  // room for one that the system fills in
    explicit SocketAddress(const Endpoint &endpoint);

    sockaddr *get() noexcept { return reinterpret_cast<sockaddr *>(&room_); }
    const sockaddr *get() const noexcept { return reinterpret_cast<const sockaddr *>(&room_); }
    // Of what it holds; the room's while it holds nothing.
    socklen_t size() const noexcept { return room_.sin6_family == AF_INET ? sizeof(sockaddr_in) : sizeof room_; }
    Endpoint endpoint() const;

  private:
    sockaddr_in6 room_{};  // the longer of the two
};

// Nothing for addresses of other families.
std::optional<IpAddress> address_of(const sockaddr *address);

}  // namespace switchml::wire
