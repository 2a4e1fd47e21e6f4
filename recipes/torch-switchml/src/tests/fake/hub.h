// SPDX-License-Identifier: BSD-3-Clause
//
// What rank 0 of the stand-in runs in place of a switch: a hub that adds up what
// the workers send it over TCP.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <switchml.h>

namespace switchml_fake {

struct Header {
    uint64_t numel;
    uint32_t dtype;
    uint32_t rank;
};

// A socket that reads and writes whole buffers, and says by false that the
// other side ended, or that nothing came for the time set.
class Socket {
  public:
    explicit Socket(int fd) : fd_(fd) {
        const int on = 1;
        setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    ~Socket() { ::close(fd_); }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;

    void set_timeout(uint32_t milliseconds) const {
        const timeval value{milliseconds / 1000, static_cast<suseconds_t>(milliseconds % 1000) * 1000};
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value));
        setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value));
    }

    bool read(void *data, size_t size) const {
        auto *bytes = static_cast<char *>(data);
        while (size > 0) {
            const ssize_t count = ::recv(fd_, bytes, size, 0);
            if (count <= 0) {
                return false;
            }
            bytes += count;
            size -= static_cast<size_t>(count);
        }
        return true;
    }

    bool readable_within(std::chrono::milliseconds time) const {
        pollfd waited{fd_, POLLIN, 0};
        return ::poll(&waited, 1, static_cast<int>(time.count())) == 1;
    }

    bool write(const void *data, size_t size) const {
        const auto *bytes = static_cast<const char *>(data);
        while (size > 0) {
            const ssize_t count = ::send(fd_, bytes, size, MSG_NOSIGNAL);
            if (count <= 0) {
                return false;
            }
            bytes += count;
            size -= static_cast<size_t>(count);
        }
        return true;
    }

    void wake() const { ::shutdown(fd_, SHUT_RDWR); }
    int fd() const { return fd_; }

  private:
    const int fd_;
};

template <typename T>
void add(std::vector<char> &sum, const std::vector<char> &part) {
    for (size_t at = 0; at < sum.size(); at += sizeof(T)) {
        T left;
        T right;
        std::memcpy(&left, &sum[at], sizeof(T));
        std::memcpy(&right, &part[at], sizeof(T));
        left += right;
        std::memcpy(&sum[at], &left, sizeof(T));
    }
}

class Hub {
  public:
    Hub(int listener, uint32_t workers) : listener_(listener), workers_(workers) {
        thread_ = std::thread([this] { run(); });
    }

    ~Hub() {
        listener_.wake();
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
            for (const auto &peer : peers_) {
                peer->wake();
            }
        }
        thread_.join();
    }

  private:
    void run() {
        if (!accept_all()) {
            return;
        }
        const char welcome = 1;
        for (const auto &peer : peers_) {
            peer->write(&welcome, 1);
        }
        while (serve_job()) {
        }
    }

    bool accept_all() {
        while (peers_.size() < workers_) {
            const int fd = ::accept(listener_.fd(), nullptr, nullptr);
            const std::lock_guard<std::mutex> lock(mutex_);
            if (fd < 0 || stopping_) {
                return false;
            }
            peers_.push_back(std::make_unique<Socket>(fd));
        }
        return true;
    }

    // A job that does not match, or a worker that is gone, stops the hub without
    // a word to the others, as a switch would leave them waiting.
    bool serve_job() {
        std::vector<char> sum;
        std::optional<Header> first;
        for (const auto &peer : peers_) {
            Header header{};
            if (!peer->read(&header, sizeof(header))) {
                return false;
            }
            if (first && (first->numel != header.numel || first->dtype != header.dtype)) {
                return false;
            }
            std::vector<char> part(header.numel * 4);
            if (!peer->read(part.data(), part.size())) {
                return false;
            }
            if (!first) {
                sum = std::move(part);
                first = header;
            } else if (header.dtype == SWITCHML_FLOAT32) {
                add<float>(sum, part);
            } else {
                add<uint32_t>(sum, part);  // wraps, as the switch does
            }
        }
        const std::lock_guard<std::mutex> lock(mutex_);  // an ending hub lets all have their result
        for (const auto &peer : peers_) {
            peer->write(&*first, sizeof(*first));  // a job of no elements needs an answer too
            peer->write(sum.data(), sum.size());
        }
        return true;
    }

    Socket listener_;
    const uint32_t workers_;
    std::mutex mutex_;
    bool stopping_ = false;
    std::vector<std::unique_ptr<Socket>> peers_;
    std::thread thread_;
};

}  // namespace switchml_fake
