// SPDX-License-Identifier: BSD-3-Clause
//
// Datagrams to the switch: sequences of them, in numbered sessions and in those of
// published clients, against a second, plain account of what each one changes.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "input.hpp"
#include "session_table.hpp"
#include "wire/packet.hpp"

using namespace switchml;
using namespace switchml::softswitch;
using fuzz::Input;

namespace {

constexpr std::uint32_t kNumel = 64;
constexpr std::uint32_t kWindow = 2;
constexpr std::uint32_t kNetwork = 0x0A000000;
constexpr std::uint64_t kNumbered = 1;
constexpr std::uint64_t kPublished = 2;
constexpr std::uint16_t kPort = 4000;

// One set of a slot.
struct Aggregate {
    std::uint32_t seen = 0;  // bits of ranks
    std::uint32_t number = 0;
    std::array<std::uint32_t, kNumel> sums{};
    std::int8_t e0 = 0;
    std::int8_t e1 = 0;
};

struct Packet {
    wire::Endpoint source;
    std::vector<std::uint8_t> bytes;
};

// Workers 0 and 1 of the numbered session are at 10.0.0.1 and 2, of the other at 3 and 4; 5 is a stranger.
Packet take_packet(Input &input) {
    const std::uint8_t kind = input.byte();
    Packet packet;
    packet.source = {kNetwork + 1 + kind % 5U, static_cast<std::uint16_t>(kPort + (kind >> 3 & 1U))};
    if ((kind & 0x80U) != 0) {
        const std::string raw = input.text(input.byte());
        packet.bytes.assign(raw.begin(), raw.end());
        return packet;
    }
    wire::Header header;
    header.size_class = (kind & 0x40U) != 0 ? 3 : 1;
    header.job = input.byte();
    const std::uint32_t position = input.number(2);  // within the session, or any
    header.packet = wire::first_number(kNumbered) + position;
    header.slot = static_cast<std::uint16_t>((kind & 0x20U) != 0 ? input.number(2) & 0x3FFFU : position % kWindow);
    header.set = (kind & 0x20U) != 0 ? (input.byte() & 1U) != 0 : position / kWindow % 2 != 0;
    header.e0 = static_cast<std::int8_t>(input.byte());
    header.e1 = static_cast<std::int8_t>(input.byte());
    packet.bytes.resize(wire::packet_bytes(wire::numel_of(header.size_class)));
    wire::encode(header, packet.bytes.data());
    const std::uint8_t value = input.byte();
    for (std::size_t i = wire::kHeaderBytes; i < packet.bytes.size(); ++i)
        packet.bytes[i] = static_cast<std::uint8_t>(value * i);
    return packet;
}

void check_encoding(const Packet &packet) {
    const auto header = wire::decode(packet.bytes.data(), packet.bytes.size());
    if (!header) return;
    REQUIRE(packet.bytes.size() == wire::packet_bytes(wire::numel_of(header->size_class)));
    std::array<std::uint8_t, wire::kHeaderBytes> again{};
    wire::encode(*header, again.data());
    for (std::size_t i = 0; i < again.size(); ++i) {
        const unsigned ignored = i == 0 ? 0x08U : i == 6 ? 0x40U : 0;
        REQUIRE(again[i] == (packet.bytes[i] & ~ignored));
    }
}

// What the published rules and those of numbered sessions say, per session of two workers.
class Account {
  public:
    explicit Account(std::uint64_t session) : session_(session) {}

    void check(const Packet &packet, const SessionTable::Taken &taken) {
        const wire::Header &header = taken.header;
        REQUIRE(packet.bytes.size() == wire::packet_bytes(kNumel) && header.slot < wire::kNumSlots);
        REQUIRE(packet.source.ip.ipv4() == kNetwork + (session_ == kNumbered ? 1 : 3) + taken.route.rank);
        const Verdict verdict = session_ == kNumbered ? numbered(header, taken.route.rank, packet)
                                                      : published(header, taken.route.rank, packet);
        REQUIRE(taken.verdict == verdict);
    }

    // Nothing but what was taken has changed a slot.
    void check_slots(const OpenSession &session) const {
        for (const auto &[place, aggregate] : aggregates_) {
            if (aggregate.sums_of == 0) continue;
            wire::Header header;
            std::array<std::uint8_t, wire::kMaxPacketBytes> result{};
            session.slots.read(place.first, place.second, header, result.data() + wire::kHeaderBytes);
            REQUIRE(header.e0 == aggregate.content.e0 && header.e1 == aggregate.content.e1);
            for (std::uint32_t i = 0; i < kNumel; ++i) REQUIRE(word(result.data(), i) == aggregate.content.sums[i]);
        }
    }

  private:
    static constexpr std::uint32_t kAll = 3;

    struct Counted {
        Aggregate content;
        std::uint32_t sums_of = 0;  // packets; 0: never opened
    };

    Counted &at(std::uint16_t slot, bool set) { return aggregates_[{slot, set}]; }

    Verdict published(const wire::Header &header, std::uint32_t rank, const Packet &packet) {
        at(header.slot, !header.set).content.seen &= ~(1U << rank);
        return take(header, rank, packet, at(header.slot, header.set).content.seen == 0);
    }

    Verdict numbered(const wire::Header &header, std::uint32_t rank, const Packet &packet) {
        const Aggregate &current = at(header.slot, header.set).content;
        if (current.seen != 0 && current.number == header.packet) return take(header, rank, packet, false);
        const std::uint32_t position = header.packet - wire::first_number(kNumbered);
        const std::uint32_t uses = uses_[header.slot];
        const bool due =
            header.slot < kWindow && position == header.slot + uses * kWindow && header.set == (uses % 2 != 0);
        const std::uint32_t other = at(header.slot, !header.set).content.seen;
        if (!due || (other != 0 && other != kAll)) return Verdict::kStale;
        ++uses_[header.slot];
        return take(header, rank, packet, true);
    }

    Verdict take(const wire::Header &header, std::uint32_t rank, const Packet &packet, bool opens) {
        Counted &counted = at(header.slot, header.set);
        Aggregate &aggregate = counted.content;
        const std::uint32_t mine = 1U << rank;
        if (opens) {
            counted = {{0, header.packet, {}, header.e0, header.e1}, 0};
        } else if ((aggregate.seen & mine) != 0) {
            return counted.sums_of == 2 ? Verdict::kRepeated : Verdict::kDuplicate;
        }
        aggregate.seen |= mine;
        aggregate.e0 = std::max(aggregate.e0, header.e0);
        aggregate.e1 = std::max(aggregate.e1, header.e1);
        for (std::uint32_t i = 0; i < kNumel; ++i) aggregate.sums[i] += word(packet.bytes.data(), i);
        return ++counted.sums_of == 2 ? Verdict::kCompleted : Verdict::kAccumulated;
    }

    static std::uint32_t word(const std::uint8_t *packet, std::uint32_t index) {
        const std::uint8_t *at = packet + wire::kHeaderBytes + std::size_t{4} * index;
        return std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 | std::uint32_t{at[2]} << 8 | at[3];
    }

    std::uint64_t session_;
    std::map<std::pair<std::uint16_t, bool>, Counted> aggregates_;
    std::map<std::uint16_t, std::uint32_t> uses_;
};

void open_sessions(SessionTable &table) {
    table.open({kNumbered, 2, kNumel, Numbering{wire::first_number(kNumbered), kWindow, 1}});
    table.set_worker(kNumbered, 0, {kNetwork + 1, kPort, 1, true});
    table.set_worker(kNumbered, 1, {kNetwork + 2, kPort, 1, true});
    table.open({kPublished, 2, kNumel, std::nullopt});
    table.set_worker(kPublished, 0, {kNetwork + 3, 0, 0, false});
    table.set_worker(kPublished, 1, {kNetwork + 4, 0, 0, false});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t bytes) {
    static SessionTable table;  // whose slots are 32 MiB; open() resets them
    Input input(data, bytes);
    open_sessions(table);
    const DropCounters before = table.dropped();
    Account numbered(kNumbered);
    Account published(kPublished);
    std::uint64_t packets = 0;
    std::uint64_t refused = 0;
    while (input.left() > 0 && packets < 1000) {
        const Packet packet = take_packet(input);
        check_encoding(packet);
        const auto taken = table.take(packet.source, packet.bytes.data(), packet.bytes.size());
        if (taken) (taken->route.session->id == kNumbered ? numbered : published).check(packet, *taken);
        ++packets;
        refused += taken ? 0 : 1;
    }
    numbered.check_slots(*table.find(kNumbered));
    published.check_slots(*table.find(kPublished));
    const DropCounters &after = table.dropped();
    REQUIRE(refused == after.malformed - before.malformed + after.unknown_worker - before.unknown_worker +
                           after.bad_slot - before.bad_slot);
    return 0;
}
