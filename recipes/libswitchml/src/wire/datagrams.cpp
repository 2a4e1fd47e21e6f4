// SPDX-License-Identifier: BSD-3-Clause
#include "datagrams.hpp"

#include <netinet/udp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "packet.hpp"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103  // linux/udp.h since 4.18; C libraries lag behind
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace switchml::wire {
namespace {

constexpr std::size_t kMaxUdpPayload = 65507;
constexpr std::size_t kMaxSegments = 64;         // the kernel's limit per GSO packet before 6.9
constexpr std::size_t kOffloadBuffers = 16;      // of 64 KiB each
constexpr std::size_t kPlainBuffers = 64;        // of one packet each
constexpr std::size_t kPlainBufferBytes = 2048;  // more than any packet, so an overlong one shows
constexpr int kWritableTimeoutMs = 100;

// What a kernel or a device without UDP GSO answers to a message that asks for it.
bool refuses_offload(int error) {
    return error == EIO || error == EINVAL || error == ENOPROTOOPT || error == EOPNOTSUPP || error == EMSGSIZE;
}

// Conditions of the network or of the moment; the same packet may get through later.
bool is_loss(int error) {
    switch (error) {
        case EAGAIN:
        case ECONNREFUSED:
        case EHOSTDOWN:
        case EHOSTUNREACH:
        case ENETDOWN:
        case ENETUNREACH:
        case ENOBUFS:
        case ENOMEM:
        case EPERM:  // a packet filter
            return true;
        default: return false;
    }
}

}  // namespace

std::size_t max_burst(std::size_t packet_bytes) { return std::min(kMaxSegments, kMaxUdpPayload / packet_bytes); }

void Sender::expand() {
    messages_.clear();
    for (const Burst &burst : bursts_) {
        const std::size_t step = offload_ && burst.joinable ? burst.count : 1;
        for (std::size_t i = 0; i < burst.count; i += step) {
            messages_.push_back({burst.data + i * burst.packet_bytes, burst.packet_bytes, step, &burst.to});
        }
    }
}

std::size_t Sender::prepare(std::size_t first) {
    const std::size_t count = std::min(kMessages, messages_.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
        const Message &message = messages_[first + i];
        msghdr &header = headers_[i].msg_hdr;
        header = {};
        vectors_[i] = {const_cast<std::uint8_t *>(message.data), message.packet_bytes * message.count};
        header.msg_iov = &vectors_[i];
        header.msg_iovlen = 1;
        if (message.to->has_value()) {
            addresses_[i] = SocketAddress(**message.to);
            header.msg_name = addresses_[i].get();
            header.msg_namelen = addresses_[i].size();
        }
        if (message.count > 1) {
            header.msg_control = controls_[i].data();
            header.msg_controllen = controls_[i].size();
            cmsghdr *control = CMSG_FIRSTHDR(&header);
            control->cmsg_level = SOL_UDP;
            control->cmsg_type = UDP_SEGMENT;
            control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
            const auto size = static_cast<std::uint16_t>(message.packet_bytes);
            std::memcpy(CMSG_DATA(control), &size, sizeof size);
        }
    }
    return count;
}

void Sender::wait_writable() const {
    pollfd waited{fd_, POLLOUT, 0};
    (void)poll(&waited, 1, kWritableTimeoutMs);
}

void Sender::split(std::size_t first) {
    std::vector<Message> rest;
    for (std::size_t i = first; i < messages_.size(); ++i) {
        const Message &message = messages_[i];
        for (std::size_t k = 0; k < message.count; ++k) {
            rest.push_back({message.data + k * message.packet_bytes, message.packet_bytes, 1, message.to});
        }
    }
    messages_ = std::move(rest);
}

int Sender::flush() {
    expand();
    int hopeless = 0;
    std::size_t done = 0;
    bool retried = false;  // the message at `done`
    while (done < messages_.size()) {
        const std::size_t count = prepare(done);
        const int sent = sendmmsg(fd_, headers_.data(), static_cast<unsigned>(count), 0);
        const int error = errno;
        if (sent > 0) {
            done += static_cast<std::size_t>(sent);
            retried = false;
        } else if (messages_[done].count > 1 && refuses_offload(error)) {
            offload_ = false;
            split(done);  // what went out stays out
            done = 0;
        } else if (!retried && (error == EAGAIN || error == ECONNREFUSED)) {
            // A connected socket reports an earlier packet's fate on the next send, which it then does not make.
            if (error == EAGAIN) wait_writable();
            last_error_ = error;
            retried = true;
        } else if (error != EINTR) {
            if (!is_loss(error)) hopeless = error;
            last_error_ = error;
            ++done;
            retried = false;
        }
    }
    bursts_.clear();
    return hopeless;
}

Receiver::Receiver(int fd, bool offload)
    : fd_(fd), offload_(offload), buffer_bytes_(offload ? std::size_t{65536} : kPlainBufferBytes) {
    const std::size_t buffers = offload ? kOffloadBuffers : kPlainBuffers;
    storage_.reset(new std::uint8_t[buffers * buffer_bytes_]);
    headers_.resize(buffers);
    vectors_.resize(buffers);
    addresses_.resize(buffers);
    controls_.resize(buffers);
    for (std::size_t i = 0; i < buffers; ++i) vectors_[i] = {storage_.get() + i * buffer_bytes_, buffer_bytes_};
}

std::size_t Receiver::read() {
    for (std::size_t i = 0; i < headers_.size(); ++i) {
        msghdr &header = headers_[i].msg_hdr;
        header = {};
        header.msg_name = addresses_[i].get();
        header.msg_namelen = sizeof(sockaddr_in6);
        header.msg_iov = &vectors_[i];
        header.msg_iovlen = 1;
        if (offload_) {
            header.msg_control = controls_[i].data();
            header.msg_controllen = controls_[i].size();
        }
    }
    const int got = recvmmsg(fd_, headers_.data(), static_cast<unsigned>(headers_.size()), MSG_DONTWAIT, nullptr);
    if (got >= 0) return static_cast<std::size_t>(got);
    const int error = errno;
    if (error == EAGAIN || error == EINTR) return 0;
    if (!is_loss(error)) throw std::system_error(error, std::generic_category(), "cannot receive packets");
    last_error_ = error;
    return 0;
}

std::size_t Receiver::segment_bytes(std::size_t index) const {
    const std::size_t total = headers_[index].msg_len;
    if (!offload_) return std::max<std::size_t>(total, 1);
    auto *header = const_cast<msghdr *>(&headers_[index].msg_hdr);
    for (cmsghdr *control = CMSG_FIRSTHDR(header); control != nullptr; control = CMSG_NXTHDR(header, control)) {
        if (control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO) {
            int size = 0;
            std::memcpy(&size, CMSG_DATA(control), sizeof size);
            if (size > 0) return static_cast<std::size_t>(size);
        }
    }
    return std::max<std::size_t>(total, 1);
}

}  // namespace switchml::wire
