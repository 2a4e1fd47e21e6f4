// SPDX-License-Identifier: BSD-3-Clause
//
// Datagrams to a worker: sequences of them, while two jobs of a session run, the
// second of which begins at the end of the first. What is not a result that is
// waited for changes nothing.
#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "error.hpp"
#include "input.hpp"
#include "udp/description.hpp"
#include "udp/pipeline.hpp"
#include "wire/values.hpp"

using namespace switchml;
using namespace switchml::udp;
using fuzz::Input;

namespace {

constexpr std::uint32_t kNumel = 64;
constexpr std::uint32_t kWorkers = 2;
constexpr std::uint32_t kRank = 1;

// A job over buffers of its own, whose neighbourhood is guarded by the address sanitizer.
struct Buffers {
    std::vector<std::uint32_t> in;
    std::vector<std::uint32_t> out;
};

struct Datagram {
    std::vector<std::uint8_t> bytes;
    bool due = false;  // of the unit that the lane waits for
};

// The sums of equal descriptions, of two workers; what is behind them stays.
void describe(const Description &job, std::uint8_t *values) {
    std::vector<std::int32_t> sums(kNumel);
    std::vector<std::uint8_t> own(std::size_t{4} * kNumel);
    for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
        std::vector<std::int32_t> words(kNumel);
        write_description(job, rank, own.data(), kNumel);
        wire::value_kernels().load(words.data(), own.data(), kNumel);
        for (std::uint32_t i = 0; i < kNumel; ++i) sums[i] += words[i];
    }
    wire::value_kernels().store(values, sums.data(), std::size_t{kWorkers} * kDescriptionWords);
}

Datagram take_datagram(Input &input, std::uint8_t kind, const Slice &slice, std::uint32_t lane) {
    Datagram datagram;
    const bool earlier = (kind & 0x40U) != 0;
    const std::uint32_t unit = slice.unit_of(lane) - (earlier ? 1 + input.byte() : 0);
    const Place place = slice.ring().place(unit);
    wire::Header header;
    header.size_class = 1;
    header.packet = slice.ring().number(unit);
    header.slot = static_cast<std::uint16_t>(place.slot ^ ((kind & 0x20U) != 0 ? input.byte() : 0U));
    header.set = place.set != ((kind & 0x10U) != 0);
    header.e0 = static_cast<std::int8_t>(input.byte());
    header.e1 = static_cast<std::int8_t>(input.byte() % 4);
    datagram.bytes.resize(wire::packet_bytes(kNumel));
    wire::encode(header, datagram.bytes.data());
    std::uint8_t *values = datagram.bytes.data() + wire::kHeaderBytes;
    for (std::size_t i = 0; i < std::size_t{4} * kNumel; ++i) values[i] = static_cast<std::uint8_t>(header.e0 * i);
    if (unit == 0 && (kind & 0x08U) == 0) describe(slice.job(), values);
    datagram.due = header.slot == place.slot && header.set == place.set && !earlier && slice.outstanding(lane);
    return datagram;
}

struct Job {
    Description description;
    Buffers buffers;
    std::uint32_t sent = 0;
};

// A worker's thread with two jobs.
class Worker {
  public:
    Worker(std::uint32_t window, std::uint32_t first_number)
        : trips_(RetransmitTimes::from_first(1000), true),
          pipeline_(SlotRing(0, window, first_number), kNumel, kWorkers, trips_, true) {}

    // Feeds the jobs until they are complete, one fails, or the input ends.
    void run(Input &input) {
        for (int packets = 0; packets < 600; ++packets) {
            while (!pipeline_.idle() && pipeline_.front().complete()) end_front();
            if (pipeline_.has_room() && begun_ < jobs_.size()) begin(input, packets);
            if (pipeline_.idle() || input.left() == 0) return;
            feed(input, packets);
            if ((packets & 63) == 63)
                pipeline_.resend_lost(1000000000,
                                      [&](const Slice &slice, std::uint32_t unit) { REQUIRE(unit < slice.units()); });
        }
    }

  private:
    void begin(Input &input, std::int64_t now_ns) {
        const std::uint8_t shape = input.byte();
        const std::uint32_t numel = input.number(2) % 1000;
        Job &job = jobs_[begun_];
        job.buffers = {std::vector<std::uint32_t>(numel, 0x3F800000U * (shape & 1U) + shape),
                       std::vector<std::uint32_t>(numel, 7)};
        job.description = {numel, (shape & 2U) != 0 ? SWITCHML_INT32 : SWITCHML_FLOAT32,
                           static_cast<std::uint16_t>(begun_)};
        ++begun_;
        const SliceData data{kRank, job.description, job.buffers.in.data(), job.buffers.out.data(), numel};
        pipeline_.begin(data, now_ns, send_);
    }

    void feed(Input &input, std::int64_t now_ns) {
        const std::uint8_t kind = input.byte();
        const Slice &front = pipeline_.front();
        const Slice *next = pipeline_.next();
        const std::uint32_t lane = kind % (front.lanes() + (next != nullptr ? next->lanes() : 0));
        const bool to_next = lane >= front.lanes();
        const Slice &slice = to_next ? *next : front;
        Datagram datagram;
        if ((kind & 0x80U) != 0) {
            const std::string raw = input.text(input.byte());
            datagram.bytes.assign(raw.begin(), raw.end());
        } else {
            const std::uint32_t lane_of_slice = to_next ? lane - front.lanes() : lane;
            datagram = take_datagram(input, kind, slice, lane_of_slice);
        }
        const auto outputs = [this] { return std::make_pair(jobs_[0].buffers.out, jobs_[1].buffers.out); };
        const auto before = outputs();
        const std::uint32_t received = received_of(front) + received_of(next);
        const bool taken = pipeline_.take(datagram.bytes.data(), datagram.bytes.size(), now_ns, send_);
        const std::uint32_t more = received_of(front) + received_of(pipeline_.next()) - received;
        if (!taken) {
            REQUIRE(more == 0 && (!datagram.due || (to_next && differs_)));
        } else if (more == 0) {  // kept until the first job has ended
            REQUIRE(next != nullptr && !differs_);
            differs_ = true;
        } else {
            REQUIRE(more == 1);
        }
        if (more == 0) REQUIRE(outputs() == before);
    }

    void end_front() {
        REQUIRE(job_of(pipeline_.front()).sent == pipeline_.front().units());
        ++ended_;
        const bool differs = differs_;
        pipeline_.drop_front();
        REQUIRE(!differs);
    }

    Job &job_of(const Slice &slice) { return jobs_[pipeline_.next() == &slice ? ended_ + 1 : ended_]; }

    static std::uint32_t received_of(const Slice &slice) { return slice.received(); }
    static std::uint32_t received_of(const Slice *slice) { return slice != nullptr ? slice->received() : 0; }

    void note_sent(const Slice &slice, std::uint32_t unit) {
        REQUIRE(unit < slice.units());
        slice.build(unit, packet_.data());
        const auto header = wire::decode(packet_.data(), packet_.size());
        REQUIRE(header && header->packet == slice.ring().number(unit) && header->slot == slice.ring().place(unit).slot);
        ++job_of(slice).sent;
    }

    const std::function<void(const Slice &, std::uint32_t)> send_ = [this](const Slice &slice, std::uint32_t unit) {
        note_sent(slice, unit);
    };
    std::vector<std::uint8_t> packet_ = std::vector<std::uint8_t>(wire::packet_bytes(kNumel));
    RoundTrips trips_;
    Pipeline pipeline_;
    std::array<Job, 2> jobs_;
    std::size_t begun_ = 0;
    std::size_t ended_ = 0;
    bool differs_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    Input input(data, bytes);
    const std::uint32_t window = 1 + input.byte() % 8U;
    Worker worker(window, wire::first_number(input.byte()));
    try {
        worker.run(input);
    } catch (const Error &error) {
        REQUIRE(error.status() == SWITCHML_EMISMATCH);
        REQUIRE(fuzz::is_printable(error.what()));
    }
    return 0;
}
