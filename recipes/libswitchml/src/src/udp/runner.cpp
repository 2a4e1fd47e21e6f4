// SPDX-License-Identifier: BSD-3-Clause
#include "runner.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "error.hpp"
#include "path_failures.hpp"
#include "udp/monotonic.hpp"

namespace switchml::udp {
namespace {

// What a 1034-byte packet costs in a socket's buffer when it arrives alone: 2 KiB of data and the kernel's bookkeeping.
constexpr std::size_t kBufferedPacketBytes = 2304;
constexpr std::size_t kLeastBufferBytes = 256 * 1024;
constexpr std::int64_t kCheckPeriodNs = 10 * kNsPerMs;  // of a job's time limit and of who has gone

void count(std::atomic<std::uint64_t> &counter, std::uint64_t more = 1) {
    // One writer, so no locked instruction is needed.
    counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

// Room for the results of a window and as many repeated ones.
std::size_t receive_bytes(std::uint32_t window) {
    return std::max(kLeastBufferBytes, 2 * window * kBufferedPacketBytes);
}

}  // namespace

Interrupt::Interrupt() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot make an event descriptor");
}

Interrupt::~Interrupt() { close(fd_); }

void Interrupt::raise() noexcept {
    raised_.store(true, std::memory_order_release);
    const std::uint64_t one = 1;
    // Never read, so it stays readable; only a full counter could refuse, and that is readable, too.
    [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
}

Runner::Runner(const Settings &settings, std::uint32_t thread, wire::UdpSocket &&socket, const Session &session,
               Interrupt &interrupt, const Liveness &liveness)
    : settings_(settings),
      thread_(thread),
      data_plane_(session.data_plane),
      interrupt_(interrupt),
      liveness_(liveness),
      socket_(std::move(socket)),
      window_(settings.max_outstanding_packets / settings.num_threads),
      buffer_wanted_(receive_bytes(window_)),
      buffer_granted_(socket_.reserve_receive(buffer_wanted_)),
      receiver_(socket_.fd(), settings.segment_offload && socket_.enable_receive_offload()),
      sender_(socket_.fd(), settings.segment_offload ? wire::Sender::Offload::kTry : wire::Sender::Offload::kOff),
      packet_bytes_(wire::packet_bytes(settings.packet_numel)),
      burst_packets_(wire::max_burst(packet_bytes_)),
      trips_(RetransmitTimes::from_first(settings.retransmit_timeout_us * kNsPerUs), session.numbered()),
      pipeline_(SlotRing(thread, window_, session.first_number), settings.packet_numel, settings.num_workers, trips_,
                session.numbered()),
      timeouts_(Timeouts::of(settings.job_timeout_ms * kNsPerMs, session.renewal_period().count() * kNsPerMs,
                             trips_.times())),
      burst_(burst_packets_ * packet_bytes_) {
    socket_.reserve_send(buffer_wanted_);
    socket_.connect(data_plane_);
}

void Runner::transmit(const Slice &slice, std::uint32_t unit) {
    if (burst_filled_ == burst_packets_) flush();
    slice.build(unit, burst_.data() + burst_filled_ * packet_bytes_);
    ++burst_filled_;
}

void Runner::flush() {
    if (burst_filled_ == 0) return;
    sender_.queue({burst_.data(), packet_bytes_, burst_filled_, std::nullopt});
    burst_filled_ = 0;
    const int error = sender_.flush();
    if (error == EMSGSIZE) throw too_large(data_plane_, packet_bytes_);
    if (error != 0) {
        throw std::system_error(error, std::generic_category(), "cannot send packets to " + wire::to_text(data_plane_));
    }
}

void Runner::begin(const SliceData &data) {
    if (pipeline_.idle()) interrupt_.note_progress(now_ns_);
    pipeline_.begin(data, now_ns_, [this](const Slice &slice, std::uint32_t unit) {
        transmit(slice, unit);
        count(traffic_.sent);
    });
    flush();
}

std::size_t Runner::take_results() {
    const auto send = [this](const Slice &slice, std::uint32_t unit) {
        transmit(slice, unit);
        count(traffic_.sent);
    };
    const std::size_t packets =
        receiver_.receive([&](const wire::Endpoint &, const std::uint8_t *data, std::size_t bytes) {
            if (!pipeline_.take(data, bytes, now_ns_, send)) {
                count(traffic_.discarded);
                return;
            }
            count(traffic_.received);
            interrupt_.note_progress(now_ns_);
        });
    flush();
    return packets;
}

// Ends what is complete and begins what may follow.
void Runner::go_on(SliceQueue &queue) {
    while (!pipeline_.idle() && pipeline_.front().complete()) {
        queue.completed();
        pipeline_.drop_front();
    }
    if (!pipeline_.has_room()) return;
    if (const auto data = queue.next()) begin(*data);
}

void Runner::resend_lost() {
    pipeline_.resend_lost(now_ns_, [this](const Slice &slice, std::uint32_t unit) {
        transmit(slice, unit);
        count(traffic_.retransmitted);
    });
    flush();
}

void Runner::check_progress() const {
    const std::int64_t progress_ns = interrupt_.progress_ns();
    const std::int64_t silence_ns = now_ns_ - progress_ns;
    if (timeouts_.ended_by_absence(now_ns_, progress_ns, liveness_.gone_since_ns())) {
        if (const auto gone = liveness_.gone())
            throw Error(gone->status(), gone->what() + ("; " + describe_silence(silence_ns)));
    }
    if (!timeouts_.ended(now_ns_, progress_ns)) return;
    std::string text = describe_silence(silence_ns) + " (the limit is job_timeout_ms)";
    const int error = receiver_.last_error() != 0 ? receiver_.last_error() : sender_.last_error();
    if (error != 0) text += "; the network's last answer: " + std::string(std::strerror(error));
    text += "; the switch stopped, a worker is missing or behind, or packets do not get through";
    const std::string missing = liveness_.missing();
    throw Error(SWITCHML_ETIMEDOUT, missing.empty() ? text : text + "; " + missing);
}

std::string Runner::describe_silence(std::int64_t silence_ns) const {
    const Slice &slice = pipeline_.front();
    return "no result from the switch at " + wire::to_text(data_plane_) + " for " +
           std::to_string(silence_ns / kNsPerMs) + " ms: " + std::to_string(slice.received()) + " of " +
           std::to_string(slice.units()) + " packets of this job answered on thread " + std::to_string(thread_) + "; " +
           std::to_string(traffic_.retransmitted.load(std::memory_order_relaxed)) + " retransmissions in this session";
}

void Runner::wait(std::int64_t until_ns) const {
    pollfd waited[2] = {{socket_.fd(), POLLIN, 0}, {interrupt_.fd(), POLLIN, 0}};
    const std::int64_t left = std::max<std::int64_t>(0, until_ns - monotonic_ns());
    const timespec limit{left / kNsPerS, left % kNsPerS};
    if (ppoll(waited, 2, &limit, nullptr) < 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "cannot wait for packets");
    }
}

void Runner::run(const SliceData &data, SliceQueue &queue) {
    now_ns_ = monotonic_ns();
    std::int64_t next_check = now_ns_ + kCheckPeriodNs;
    begin(data);
    while (!pipeline_.idle()) {
        if (interrupt_.raised()) return;
        now_ns_ = monotonic_ns();
        const std::size_t packets = take_results();
        go_on(queue);
        if (pipeline_.idle()) break;
        if (now_ns_ >= pipeline_.next_look_ns()) resend_lost();
        if (now_ns_ >= next_check) {
            check_progress();
            next_check = now_ns_ + kCheckPeriodNs;
        }
        if (packets == 0) wait(std::min(next_check, pipeline_.next_look_ns()));
    }
}

}  // namespace switchml::udp
