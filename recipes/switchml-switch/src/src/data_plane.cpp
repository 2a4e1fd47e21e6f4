// SPDX-License-Identifier: BSD-3-Clause
#include "data_plane.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
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
constexpr std::size_t kMaxPorts = 64;         // reply lanes with a buffer each; workers have up to 32
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
      packet_link_(options.packet_faults, options.seed),
      result_link_(options.result_faults, ~options.seed),
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

void DataPlane::open_session(const SessionOptions &options) {
    execute([&] {
        if (!options.numbering) {
            // Packets of an older session would be taken for contributions to the new one.
            const auto ignore = [](const wire::Endpoint &, const std::uint8_t *, std::size_t) {};
            for (std::size_t i = 0; i < kDrainRounds && receiver_.receive(ignore) > 0; ++i) {
            }
            packet_link_.clear();
            result_link_.clear();
        }
        drop(options.id);
        sessions_.open(options);
        outboxes_[options.id] = {};
        latest_ = options.id;
        ++counters_.sessions_opened;
        counters_.packet_numel = options.packet_numel;
        counters_.workers.assign(options.num_workers, {});
    });
}

void DataPlane::set_worker(std::uint64_t session_id, std::uint32_t rank, const Member &member) {
    execute([&] { sessions_.set_worker(session_id, rank, member); });
}

void DataPlane::close_session(std::uint64_t session_id) {
    execute([&] { drop(session_id); });
}

void DataPlane::drop(std::uint64_t session_id) {
    const OpenSession *session = sessions_.find(session_id);
    if (session == nullptr) return;
    if (session_id == latest_) counters_.workers = counters_of(*session);
    sessions_.close(session_id);
    outboxes_.erase(session_id);
}

std::optional<DataPlane::Clock::time_point> DataPlane::latest_packet(std::uint64_t session_id) {
    std::optional<Clock::time_point> latest;
    execute([&] {
        const auto found = outboxes_.find(session_id);
        if (found != outboxes_.end()) latest = found->second.latest_packet;
    });
    return latest;
}

Counters DataPlane::counters() {
    Counters copy;
    execute([&] {
        copy = counters_;
        copy.packet_faults = packet_link_.counters();
        copy.result_faults = result_link_.counters();
        copy.packets_dropped = sessions_.dropped();
        copy.dropped_sources = sessions_.dropped_sources();
        const OpenSession *latest = sessions_.find(latest_);
        if (latest != nullptr) copy.workers = counters_of(*latest);
    });
    return copy;
}

std::vector<WorkerCounters> DataPlane::counters_of(const OpenSession &session) {
    std::vector<WorkerCounters> all;
    all.reserve(session.workers.size());
    for (const SessionWorker &worker : session.workers) all.push_back(worker.counters);
    return all;
}

void DataPlane::wait() const {
    pollfd waited[2] = {{socket_.fd(), POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (poll(waited, 2, wait_limit_ms()) < 0 && errno != EINTR) {
        throw std::system_error(errno, std::generic_category(), "cannot wait for packets");
    }
    std::uint64_t wakes = 0;
    [[maybe_unused]] const auto got = read(wake_fd_, &wakes, sizeof wakes);
}

void DataPlane::serve() {
    const auto sink = [this](const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes) {
        receive(source, data, bytes);
    };
    try {
        for (;;) {
            wait();
            run_commands();
            {
                const std::lock_guard lock(mutex_);
                if (stopping_) return;
            }
            for (std::size_t i = 0; i < kRoundsPerTurn && receiver_.receive(sink) > 0; ++i) {
                handle_due_packets();
                flush_all();
                send_due_results();
            }
            handle_due_packets();
            flush_all();
            send_due_results();
        }
    } catch (const std::system_error &error) {
        {
            const std::lock_guard lock(mutex_);
            failure_ = error.what();
        }
        run_commands();  // whoever waits gets an answer; later ones get the failure
    }
}

void DataPlane::receive(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes) {
    ++counters_.packets_received;
    if (packet_link_.active() &&
        packet_link_.admit(source, data, bytes, Clock::now()) != FaultyLink::Fate::kDelivered) {
        return;
    }
    handle(source, data, bytes);
}

void DataPlane::handle(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes) {
    if (wire::is_probe(data, bytes)) {
        if (sessions_.answers_probe(source, bytes)) send_back(source, data, bytes);
        return;
    }
    const auto taken = sessions_.take(source, data, bytes);
    if (!taken) return;
    const OpenSession &session = *taken->route.session;
    Outbox &outbox = outboxes_[session.id];
    outbox.touched = true;
    if (taken->verdict == Verdict::kCompleted) {
        ++counters_.slots_completed;
        counters_.elements_aggregated += session.packet_numel;
        announce(taken->route, taken->header, outbox);
    } else if (taken->verdict == Verdict::kRepeated) {
        repeat(taken->route, taken->header);
    }
}

void DataPlane::announce(const SessionTable::Route &route, const wire::Header &header, Outbox &outbox) {
    const OpenSession &session = *route.session;
    Batch &batch = outbox.batches[route.lane];
    const std::size_t longest = wire::max_burst(session.packet_bytes);
    if (batch.withheld.size() == longest) flush(session, route.lane, batch);
    batch.data.resize(longest * session.packet_bytes);
    std::uint8_t *packet = batch.data.data() + batch.withheld.size() * session.packet_bytes;
    wire::Header reply = header;
    session.slots.read(header.slot, header.set, reply, packet + wire::kHeaderBytes);
    wire::encode(reply, packet);
    std::uint32_t withheld = 0;
    for (std::uint32_t rank = 0; rank < session.workers.size(); ++rank) {
        const wire::Endpoint to = reply_to(session.workers[rank].member, route.lane);
        if (!result_is_sent(to, packet, session.packet_bytes)) withheld |= 1U << rank;
    }
    batch.withheld.push_back(withheld);
}

void DataPlane::repeat(const SessionTable::Route &route, wire::Header header) {
    const OpenSession &session = *route.session;
    const wire::Endpoint to = reply_to(session.workers[route.rank].member, route.lane);
    auto &packet = single_packets_.emplace_back();
    session.slots.read(header.slot, header.set, header, packet.data() + wire::kHeaderBytes);
    wire::encode(header, packet.data());
    if (!result_is_sent(to, packet.data(), session.packet_bytes)) return;
    sender_.queue({packet.data(), session.packet_bytes, 1, to});
    ++counters_.results_sent;
}

void DataPlane::send_back(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes) {
    auto &packet = single_packets_.emplace_back();
    std::copy_n(data, bytes, packet.data());
    if (result_is_sent(source, packet.data(), bytes)) sender_.queue({packet.data(), bytes, 1, source});
}

// Whether injected faults leave it alone; a result that they delay is sent by send_due_results.
bool DataPlane::result_is_sent(const wire::Endpoint &to, const std::uint8_t *packet, std::size_t bytes) {
    return !result_link_.active() ||
           result_link_.admit(to, packet, bytes, Clock::now()) == FaultyLink::Fate::kDelivered;
}

void DataPlane::handle_due_packets() {
    if (!packet_link_.next_due()) return;
    for (const auto &packet : packet_link_.due(Clock::now())) {
        handle(packet.endpoint, packet.bytes.data(), packet.bytes.size());
    }
}

void DataPlane::send_due_results() {
    if (!result_link_.next_due()) return;
    const auto results = result_link_.due(Clock::now());
    for (const auto &result : results) {
        sender_.queue({result.bytes.data(), result.bytes.size(), 1, result.endpoint});
        if (!wire::is_probe(result.bytes.data(), result.bytes.size())) ++counters_.results_sent;
    }
    if (!results.empty()) send_queued();
}

// For poll: until a packet that injected faults delay is due, without end where there is none.
int DataPlane::wait_limit_ms() const {
    const auto packet = packet_link_.next_due();
    const auto result = result_link_.next_due();
    if (!packet && !result) return -1;
    const auto due = std::min(packet.value_or(Clock::time_point::max()), result.value_or(Clock::time_point::max()));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
}

// A worker that cannot be reached (a wrong address, an MTU too small) must not stop the others' switch.
void DataPlane::send_queued() {
    const int error = sender_.flush();
    single_packets_.clear();
    if (error == 0) return;
    if (counters_.results_undeliverable++ == 0) {
        std::fprintf(stderr, "switchml-switch: results cannot be delivered: %s\n", std::strerror(error));
    }
}

void DataPlane::flush(const OpenSession &session, std::uint16_t lane, Batch &batch) {
    const std::size_t packets = batch.withheld.size();
    const std::size_t packet_bytes = session.packet_bytes;
    for (std::uint32_t rank = 0; rank < session.workers.size(); ++rank) {
        const Member &member = session.workers[rank].member;
        const std::uint32_t mine = 1U << rank;
        for (std::size_t first = 0; first < packets;) {
            if ((batch.withheld[first] & mine) != 0) {
                ++first;
                continue;
            }
            std::size_t end = first + 1;
            while (end < packets && (batch.withheld[end] & mine) == 0) ++end;
            sender_.queue({batch.data.data() + first * packet_bytes, packet_bytes, end - first, reply_to(member, lane),
                           member.takes_bursts});
            counters_.results_sent += end - first;
            first = end;
        }
    }
    send_queued();
    batch.withheld.clear();
}

void DataPlane::flush_all() {
    for (auto &[id, outbox] : outboxes_) {
        if (!std::exchange(outbox.touched, false)) continue;
        outbox.latest_packet = Clock::now();
        const OpenSession &session = *sessions_.find(id);
        for (auto &[lane, batch] : outbox.batches) {
            if (!batch.withheld.empty()) flush(session, lane, batch);
        }
        if (outbox.batches.size() > kMaxPorts) outbox.batches.clear();
    }
    if (!single_packets_.empty()) send_queued();
}

}  // namespace switchml::softswitch
