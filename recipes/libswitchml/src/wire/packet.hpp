// SPDX-License-Identifier: BSD-3-Clause
//
// The UDP payload of one slot update: 10 bytes of header and 64 or 256 values.
// Offsets are those of the switch program; see the table in README.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace switchml::wire {

constexpr std::uint16_t kDataPort = 48864;  // 0xBEE0, fixed in published switches and clients
constexpr int kClientTtl = 128;             // what published clients use
constexpr std::size_t kHeaderBytes = 10;
constexpr std::size_t kMaxPacketNumel = 256;
constexpr std::size_t kMaxPacketBytes = kHeaderBytes + 4 * kMaxPacketNumel;
constexpr std::uint32_t kNumSlots = 8192;
constexpr std::uint32_t kMaxWorkers = 32;  // the switch keeps a 32-bit bitmap per slot

// What a packet says about itself, values apart.
struct Header {
    std::uint8_t size_class = 0;
    std::uint8_t job = 0;      // low 8 bits of the job counter
    std::uint32_t packet = 0;  // the client's own number, echoed by the switch
    std::uint16_t slot = 0;    // below kNumSlots
    bool set = false;          // which of the slot's two sets
    std::int8_t e0 = 0;        // exponent; the switch keeps the maximum
    std::int8_t e1 = 0;        // second exponent, likewise
};

constexpr std::uint8_t size_class_of(std::uint32_t packet_numel) { return packet_numel == 64 ? 1 : 3; }

// 0 for the classes that switches drop (128 and 512 bytes) and for unknown ones.
constexpr std::uint32_t numel_of(std::uint8_t size_class) { return size_class == 1 ? 64 : size_class == 3 ? 256 : 0; }

constexpr std::size_t packet_bytes(std::uint32_t packet_numel) { return kHeaderBytes + 4 * std::size_t{packet_numel}; }

// Where the packet numbers of a session begin, so that those of an older session do not fit into it (as TCP's initial
// sequence numbers; the mixing is that of SplitMix64). Workers and switch come to the same number.
constexpr std::uint32_t first_number(std::uint64_t session_id) {
    std::uint64_t mixed = session_id + 0x9E3779B97F4A7C15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return static_cast<std::uint32_t>(mixed ^ (mixed >> 31));
}

inline void encode(const Header &header, std::uint8_t *out) {
    const unsigned pool = header.slot | (header.set ? 0x8000U : 0U);
    out[0] = static_cast<std::uint8_t>(0x10U | header.size_class);
    out[1] = header.job;
    // The packet number is private to the client; published ones store it little-endian.
    for (int i = 0; i < 4; ++i) out[2 + i] = static_cast<std::uint8_t>(header.packet >> (8 * i));
    out[6] = static_cast<std::uint8_t>(pool >> 8);
    out[7] = static_cast<std::uint8_t>(pool);
    out[8] = static_cast<std::uint8_t>(header.e0);
    out[9] = static_cast<std::uint8_t>(header.e1);
}

// Nothing when type, size class or length contradict each other. The slot is
// masked to 14 bits, as in the switch; the caller checks its range.
inline std::optional<Header> decode(const std::uint8_t *data, std::size_t bytes) {
    if (bytes < kHeaderBytes || (data[0] & 0xF0U) != 0x10U) return std::nullopt;
    Header header;
    header.size_class = data[0] & 0x07U;
    const std::uint32_t numel = numel_of(header.size_class);
    if (numel == 0 || bytes != packet_bytes(numel)) return std::nullopt;
    header.job = data[1];
    for (int i = 0; i < 4; ++i) header.packet |= std::uint32_t{data[2 + i]} << (8 * i);
    header.slot = static_cast<std::uint16_t>((unsigned{data[6]} << 8 | data[7]) & 0x3FFFU);
    header.set = (data[6] & 0x80U) != 0;
    header.e0 = static_cast<std::int8_t>(data[8]);
    header.e1 = static_cast<std::int8_t>(data[9]);
    return header;
}

// Whether packets pass, which a worker asks before its first job: as large as those of its session, and of no type that
// a switch sums. switchml-switch sends it back as it is.
constexpr std::uint8_t kProbeType = 0x20;

inline void encode_probe(std::uint32_t packet_numel, std::uint8_t *out) {
    std::fill_n(out, packet_bytes(packet_numel), std::uint8_t{0});
    out[0] = static_cast<std::uint8_t>(kProbeType | size_class_of(packet_numel));
}

inline bool is_probe(const std::uint8_t *data, std::size_t bytes) {
    return bytes >= kHeaderBytes && (data[0] & 0xF0U) == kProbeType &&
           bytes == packet_bytes(numel_of(data[0] & 0x07U)) && numel_of(data[0] & 0x07U) != 0;
}

}  // namespace switchml::wire
