// SPDX-License-Identifier: BSD-3-Clause
#include "address.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace switchml::wire {

IpAddress IpAddress::from_ipv6(const Bytes &bytes) {
    IpAddress address;
    address.low_ = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        address.high_ = address.high_ << 8 | bytes[i];
        address.low_ = address.low_ << 8 | bytes[8 + i];
    }
    return address;
}

std::optional<IpAddress> IpAddress::from_message(const std::string &bytes) {
    Bytes ipv6{};
    if (bytes.size() != ipv6.size()) return std::nullopt;
    std::copy(bytes.begin(), bytes.end(), ipv6.begin());
    return from_ipv6(ipv6);
}

std::string IpAddress::to_message() const {
    const Bytes bytes = ipv6();
    return {bytes.begin(), bytes.end()};
}

std::optional<IpAddress> IpAddress::parse(const std::string &text) {
    in_addr ipv4{};
    if (inet_pton(AF_INET, text.c_str(), &ipv4) == 1) return IpAddress(ntohl(ipv4.s_addr));
    Bytes ipv6{};
    if (inet_pton(AF_INET6, text.c_str(), ipv6.data()) == 1) return from_ipv6(ipv6);
    return std::nullopt;
}

IpAddress::Bytes IpAddress::ipv6() const {
    Bytes bytes{};
    for (std::size_t i = 0; i < 8; ++i) {
        bytes[i] = static_cast<std::uint8_t>(high_ >> (56 - 8 * i));
        bytes[8 + i] = static_cast<std::uint8_t>(low_ >> (56 - 8 * i));
    }
    return bytes;
}

bool IpAddress::is_loopback() const noexcept { return is_ipv4() ? ipv4() >> 24 == 127 : high_ == 0 && low_ == 1; }

std::size_t IpAddress::hash() const noexcept {
    return static_cast<std::size_t>((high_ ^ (low_ * 0x9E3779B97F4A7C15U)) * 0xBF58476D1CE4E5B9U);
}

std::string to_text(const IpAddress &address) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address.is_ipv4()) {
        const in_addr ipv4{htonl(address.ipv4())};
        return inet_ntop(AF_INET, &ipv4, text.data(), text.size());
    }
    return inet_ntop(AF_INET6, address.ipv6().data(), text.data(), text.size());
}

std::string to_text(const Endpoint &endpoint) {
    const std::string ip = to_text(endpoint.ip);
    return (endpoint.ip.is_ipv4() ? ip : "[" + ip + "]") + ":" + std::to_string(endpoint.port);
}

SocketAddress::SocketAddress(const Endpoint &endpoint) {
    if (endpoint.ip.is_ipv4()) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(endpoint.ip.ipv4());
        address.sin_port = htons(endpoint.port);
        std::memcpy(&room_, &address, sizeof address);
        return;
    }
    const IpAddress::Bytes bytes = endpoint.ip.ipv6();
    room_.sin6_family = AF_INET6;
    std::copy(bytes.begin(), bytes.end(), room_.sin6_addr.s6_addr);
    room_.sin6_port = htons(endpoint.port);
}

Endpoint SocketAddress::endpoint() const {
    // The port lies at the same place in both kinds.
    return {address_of(get()).value_or(IpAddress()), ntohs(room_.sin6_port)};
}

std::optional<IpAddress> address_of(const sockaddr *address) {
    if (address->sa_family == AF_INET) {
        sockaddr_in ipv4{};
        std::memcpy(&ipv4, address, sizeof ipv4);
        return IpAddress(ntohl(ipv4.sin_addr.s_addr));
    }
    if (address->sa_family != AF_INET6) return std::nullopt;
    sockaddr_in6 ipv6{};
    std::memcpy(&ipv6, address, sizeof ipv6);
    IpAddress::Bytes bytes{};
    std::copy(std::begin(ipv6.sin6_addr.s6_addr), std::end(ipv6.sin6_addr.s6_addr), bytes.begin());
    return IpAddress::from_ipv6(bytes);
}

}  // namespace switchml::wire
