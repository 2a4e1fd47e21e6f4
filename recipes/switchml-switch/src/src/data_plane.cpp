// SPDX-License-Identifier: BSD-3-Clause
#include "data_plane.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "wire/packet.hpp"

namespace switchml::softswitch {
namespace {

constexpr int kSwitchTtl = 64;  // what published switches answer with
// 32 workers with the default window, each packet arriving alone.
constexpr std::size_t kReceiveBytes = 32 * 1024 * 1024;
// Below this even a few workers overrun it.
constexpr std::size_t kScarceBytes = 4 * 1024 * 1024;
constexpr std::size_t kSendBytes = 8 * 1024 * 1024;
constexpr std::size_t kMaxPorts = 64;         // reply ports with a buffer each; workers have up to 32
constexpr std::size_t kRoundsPerTurn = 16;    // before commands get their turn
constexpr std::size_t kDrainRounds = 100000;  // a bound, should an old worker never stop sending

int make_event() {
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "cannot make an event descriptor");
    return fd;
}

}  // namespace

DataPlane::DataPlane(const DataPlaneOptions &options)
    : options_(options),
      socket_(options.local, kSwitchTtl),
      receiver_(socket_.fd(), socket_.enable_receive_offload()),
      sender_(socket_.fd(), wire::Sender::Offload::kTry),
      random_(options.seed),
      wake_fd_(make_event()) {
    counters_.receive_buffer_bytes = socket_.reserve_receive(kReceiveBytes);
    if (counters_.receive_buffer_bytes < kScarceBytes) {
        std::fprintf(stderr,
                     "switchml-switch: the system granted a receive buffer of %llu bytes of %zu; with many workers or "
                     "large windows packets will be lost and sent again (raise net.core.rmem_max)\n",
                     static_cast<unsigned long long>(counters_.receive_buffer_bytes), kReceiveBytes);
    }
    socket_.reserve_send(kSendBytes);
    thread_ = std::thread([this] { serve(); });
}

DataPlane::~DataPlane() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_fd_, &one, sizeof one);
    thread_.join();
    close(wake_fd_);
}

void DataPlane::execute(std::function<void()> command) {
    std::packaged_task<void()> task(std::move(command));
    std::future<void> done = task.get_future();
    {
        const std::lock_guard lock(mutex_);
        if (!failure_.empty()) throw std::runtime_error(failure_);
        commands_.push_back(std::move(task));
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_fd_, &one, sizeof one);
    done.get();
}

void DataPlane::run_commands() {
    std::deque<std::packaged_task<void()>> taken;
    {
        const std::lock_guard lock(mutex_);
        taken.swap(commands_);
    }
    for (auto &command : taken) command();
}

std::string DataPlane::failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
}

void DataPlane::open_session(std::uint32_t num_workers, std::uint32_t packet_numel) {
    execute([=] {
        // Packets of an older session would be taken for contributions to the new one.
        const auto ignore = [](const wire::Endpoint &, const std::uint8_t *, std::size_t) {};
        for (std::size_t i = 0; i < kDrainRounds && receiver_.receive(ignore) > 0; ++i) {
        }
        slots_.reset(num_workers, packet_numel);
        rank_of_.clear();
        takes_bursts_ = 0;
        batches_.clear();
        packet_bytes_ = wire::packet_bytes(packet_numel);
        ++counters_.sessions_opened;
        counters_.packet_numel = packet_numel;
        counters_.workers.assign(num_workers, {});
    });
}

void DataPlane::set_worker(std::uint32_t rank, std::uint32_t ipv4, bool takes_bursts) {
    execute([=] {
        rank_of_[ipv4] = rank;
        counters_.workers.at(rank).ipv4 = ipv4;
        if (takes_bursts) takes_bursts_ |= 1U << rank;
    });
}

Counters DataPlane::counters() {
    Counters copy;
    execute([&] { copy = counters_; });
    return copy;
}

void DataPlane::wait() const {
    pollfd waited[2] = {{socket_.fd(), POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (poll(waited, 2, -1) < 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "cannot wait for packets");
    }
    std::uint64_t wakes = 0;
    [[maybe_unused]] const auto got = read(wake_fd_, &wakes, sizeof wakes);
}

void DataPlane::serve() {
    const auto sink = [this](const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes) {
        handle(source, data, bytes);
    };
    try {
        for (;;) {
            wait();
            run_commands();
            {
                const std::lock_guard lock(mutex_);
                if (stopping_) return;
            }
            for (std::size_t i = 0; i < kRoundsPerTurn && receiver_.receive(sink) > 0; ++i) flush_all();
        }
    } catch (const std::system_error &error) {
        {
            const std::lock_guard lock(mutex_);
            failure_ = error.what();
        }
        run_commands();  // whoever waits gets an answer; later ones get the failure
    }
}

void DataPlane::handle(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes) {
    ++counters_.packets_received;
    DropCounters &dropped = counters_.packets_dropped;
    if (chance(options_.drop_rate)) {
        ++dropped.injected;
        return;
    }
    const auto header = wire::decode(data, bytes);
    if (!header) {
        ++dropped.malformed;
        return;
    }
    const auto worker = rank_of_.find(source.ipv4);
    if (worker == rank_of_.end()) {
        ++dropped.unknown_worker;
        return;
    }
    if (bytes != packet_bytes_) {
        ++dropped.malformed;
        return;
    }
    if (header->slot >= wire::kNumSlots) {
        ++dropped.bad_slot;
        return;
    }
    aggregate(worker->second, source, *header, data);
}

void DataPlane::aggregate(std::uint32_t rank, const wire::Endpoint &source, const wire::Header &header,
                          const std::uint8_t *data) {
    WorkerCounters &worker = counters_.workers[rank];
    ++worker.packets;
    worker.bytes += packet_bytes_;
    const std::uint8_t *values = data + wire::kHeaderBytes;
    switch (slots_.update({rank, header.slot, header.set, header.e0, header.e1, values})) {
        case Verdict::kCompleted:
            ++counters_.slots_completed;
            counters_.elements_aggregated += counters_.packet_numel;
            announce(source.port, header);
            break;
        case Verdict::kRepeated:
            ++worker.retransmitted_results;
            repeat(rank, source.port, header);
            break;
        case Verdict::kAccumulated:
        case Verdict::kDuplicate: break;
    }
}

void DataPlane::announce(std::uint16_t port, const wire::Header &header) {
    Batch &batch = batches_[port];
    if (batch.withheld.size() == wire::max_burst(packet_bytes_)) flush(port, batch);
    const std::size_t offset = batch.data.size();
    batch.data.resize(offset + packet_bytes_);
    std::uint8_t *packet = batch.data.data() + offset;
    wire::Header reply = header;
    slots_.read(header.slot, header.set, reply, packet + wire::kHeaderBytes);
    wire::encode(reply, packet);
    std::uint32_t withheld = 0;
    for (std::uint32_t rank = 0; rank < counters_.workers.size(); ++rank) {
        if (chance(options_.drop_result_rate)) withheld |= 1U << rank;
    }
    batch.withheld.push_back(withheld);
}

void DataPlane::repeat(std::uint32_t rank, std::uint16_t port, wire::Header header) {
    if (chance(options_.drop_result_rate)) {
        ++counters_.results_dropped_injected;
        return;
    }
    std::uint8_t packet[wire::kMaxPacketBytes];
    slots_.read(header.slot, header.set, header, packet + wire::kHeaderBytes);
    wire::encode(header, packet);
    sender_.queue({packet, packet_bytes_, 1, wire::Endpoint{counters_.workers[rank].ipv4, port}});
    send_queued();
    ++counters_.results_sent;
}

// A worker that cannot be reached (a wrong address, an MTU too small) must not stop the others' switch.
void DataPlane::send_queued() {
    const int error = sender_.flush();
    if (error == 0) return;
    if (counters_.results_undeliverable++ == 0) {
        std::fprintf(stderr, "switchml-switch: results cannot be delivered: %s\n", std::strerror(error));
    }
}

void DataPlane::flush(std::uint16_t port, Batch &batch) {
    const std::size_t packets = batch.withheld.size();
    for (std::uint32_t rank = 0; rank < counters_.workers.size(); ++rank) {
        const std::uint32_t mine = 1U << rank;
        for (std::size_t first = 0; first < packets;) {
            if ((batch.withheld[first] & mine) != 0) {
                ++counters_.results_dropped_injected;
                ++first;
                continue;
            }
            std::size_t end = first + 1;
            while (end < packets && (batch.withheld[end] & mine) == 0) ++end;
            sender_.queue({batch.data.data() + first * packet_bytes_, packet_bytes_, end - first,
                           wire::Endpoint{counters_.workers[rank].ipv4, port}, (takes_bursts_ & mine) != 0});
            counters_.results_sent += end - first;
            first = end;
        }
    }
    send_queued();
    batch.data.clear();
    batch.withheld.clear();
}

void DataPlane::flush_all() {
    for (auto &[port, batch] : batches_) {
        if (!batch.withheld.empty()) flush(port, batch);
    }
    if (batches_.size() > kMaxPorts) batches_.clear();
}

}  // namespace switchml::softswitch
