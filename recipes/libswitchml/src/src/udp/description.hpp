// SPDX-License-Identifier: BSD-3-Clause
//
// What a worker takes a job to be, told to all others in the first packet of
// each slice. Every worker writes its own two words and leaves the others' 0, so
// that the switch's sum hands all descriptions to everybody: workers that differ
// learn it from the same packet, whatever the switch. So do those whose
// libswitchml does not know of exact sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "switchml.h"

namespace switchml::udp {

struct Description {
    std::uint64_t numel = 0;  // of the whole job; below 2^44, which the count of packets implies
    switchml_dtype dtype = SWITCHML_FLOAT32;
    std::uint16_t job = 0;  // low 16 bits of the job's number in the session
    bool exact = false;     // the slice's float32 elements come with the description, see exact.hpp
};

// Words of each worker.
constexpr std::uint32_t kDescriptionWords = 2;

// The values of a packet, in wire order: the rank's words hold the description, all others 0.
void write_description(const Description &own, std::uint32_t rank, std::uint8_t *values, std::uint32_t packet_numel);

// Which workers differ and how, from the sum over all of them; nothing when all are equal to `own`.
std::optional<std::string> find_difference(const Description &own, const std::uint8_t *sums, std::uint32_t num_workers);

}  // namespace switchml::udp
