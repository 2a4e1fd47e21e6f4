// SPDX-License-Identifier: BSD-3-Clause
//
// Datagrams to a worker: sequences of them, while two jobs of a session run one
// after the other. What is not a result that is waited for changes nothing.
#include <algorithm>
#include <cstring>
#include <vector>

#include "error.hpp"
#include "input.hpp"
#include "udp/description.hpp"
#include "udp/transfer.hpp"
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

// The sums of equal descriptions, of two workers.
void describe(const Description &job, std::uint8_t *values) {
    std::vector<std::int32_t> sums(kNumel);
    std::vector<std::uint8_t> own(std::size_t{4} * kNumel);
    for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
        std::vector<std::int32_t> words(kNumel);
        write_description(job, rank, own.data(), kNumel);
        wire::value_kernels().load(words.data(), own.data(), kNumel);
        for (std::uint32_t i = 0; i < kNumel; ++i) sums[i] += words[i];
    }
    wire::value_kernels().store(values, sums.data(), kNumel);
}

Datagram take_datagram(Input &input, const Slice &slice, const SlotRing &ring, const Description &job) {
    const std::uint8_t kind = input.byte();
    Datagram datagram;
    if ((kind & 0x80U) != 0) {
        const std::string raw = input.text(input.byte());
        datagram.bytes.assign(raw.begin(), raw.end());
        return datagram;
    }
    const std::uint32_t lane = kind % slice.lanes();
    const bool earlier = (kind & 0x40U) != 0;
    const std::uint32_t unit = slice.unit_of(lane) - (earlier ? 1 + input.byte() : 0);
    const Place place = ring.place(unit);
    wire::Header header;
    header.size_class = 1;
    header.packet = ring.number(unit);
    header.slot = static_cast<std::uint16_t>(place.slot ^ ((kind & 0x20U) != 0 ? input.byte() : 0U));
    header.set = place.set != ((kind & 0x10U) != 0);
    header.e0 = static_cast<std::int8_t>(input.byte());
    header.e1 = static_cast<std::int8_t>(input.byte() % 4);
    datagram.bytes.resize(wire::packet_bytes(kNumel));
    wire::encode(header, datagram.bytes.data());
    std::uint8_t *values = datagram.bytes.data() + wire::kHeaderBytes;
    for (std::size_t i = 0; i < std::size_t{4} * kNumel; ++i) values[i] = static_cast<std::uint8_t>(header.e0 * i);
    if (unit == 0 && (kind & 0x08U) == 0) describe(job, values);
    datagram.due = header.slot == place.slot && header.set == place.set && !earlier && slice.outstanding(lane);
    return datagram;
}

// Feeds a job until it is complete, fails, or the input ends; true when it is complete.
bool run_job(Input &input, SlotRing &ring, std::uint16_t number) {
    const std::uint8_t shape = input.byte();
    const std::uint32_t numel = input.number(2) % 1000;
    Buffers buffers{std::vector<std::uint32_t>(numel, 0x3F800000U * (shape & 1U) + shape),
                    std::vector<std::uint32_t>(numel, 7)};
    const Description job{numel, (shape & 2U) != 0 ? SWITCHML_INT32 : SWITCHML_FLOAT32, number};
    const SliceData data{kRank, job, buffers.in.data(), buffers.out.data(), numel};
    RoundTrips trips(RetransmitTimes::from_first(1000), true);
    Transfer transfer(data, ring, kNumel, kWorkers, trips);
    const Slice &slice = transfer.slice();
    std::vector<std::uint8_t> packet(wire::packet_bytes(kNumel));
    std::uint32_t sent = 0;
    const auto send = [&](std::uint32_t unit) {
        REQUIRE(unit < slice.units());
        slice.build(unit, packet.data());
        const auto header = wire::decode(packet.data(), packet.size());
        REQUIRE(header && header->packet == ring.number(unit) && header->slot == ring.place(unit).slot);
        ++sent;
    };
    transfer.start(0, send);
    for (int packets = 0; packets < 300 && input.left() > 0 && !slice.complete(); ++packets) {
        const Datagram datagram = take_datagram(input, slice, ring, job);
        const std::vector<std::uint32_t> before = buffers.out;
        const std::uint32_t received = slice.received();
        if (!transfer.take(datagram.bytes.data(), datagram.bytes.size(), packets, send)) {
            REQUIRE(!datagram.due);
            REQUIRE(slice.received() == received && buffers.out == before);
        } else {
            REQUIRE(slice.received() == received + 1);
        }
        REQUIRE(sent <= slice.units() && slice.received() <= sent);
        if ((packets & 63) == 63)
            transfer.resend_lost(1000000000, [&](std::uint32_t unit) { REQUIRE(unit < slice.units()); });
    }
    REQUIRE(!slice.complete() || sent == slice.units());
    ring.advance(slice.units());
    return slice.complete();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    Input input(data, bytes);
    SlotRing ring(0, 1 + input.byte() % 8U, wire::first_number(input.byte()));
    try {
        if (run_job(input, ring, 0)) run_job(input, ring, 1);
    } catch (const Error &error) {
        REQUIRE(error.status() == SWITCHML_EMISMATCH);
        REQUIRE(fuzz::is_printable(error.what()));
    }
    return 0;
}
