// SPDX-License-Identifier: BSD-3-Clause
#include "udp/description.hpp"

#include <array>
#include <cstring>
#include <map>

#include "wire/packet.hpp"
#include "wire/values.hpp"

namespace switchml::udp {
namespace {

static_assert(kDescriptionWords * wire::kMaxWorkers <= 64, "the descriptions of all workers fit the smallest packet");

constexpr std::uint32_t kExactFloat32 = 3;  // among the data types

using Words = std::array<std::uint32_t, kDescriptionWords>;

// Low 32 bits of numel; 4 bits of data type (from 1, so that nothing described is all 0), 12 of numel, 16 of the
// number.
Words pack(const Description &job) {
    const auto low = static_cast<std::uint32_t>(job.numel);
    const auto high = static_cast<std::uint32_t>(job.numel >> 32) & 0xFFFU;
    const std::uint32_t type = job.exact ? kExactFloat32 : static_cast<std::uint32_t>(job.dtype) + 1;
    return {low, type | high << 4 | std::uint32_t{job.job} << 16};
}

std::string describe(const Words &words) {
    const std::uint64_t numel = std::uint64_t{words[0]} | std::uint64_t{words[1] >> 4 & 0xFFFU} << 32;
    const std::uint32_t type = words[1] & 0xFU;
    if (type == 0 && numel == 0) return "no description (an older libswitchml)";
    const std::string name = type == SWITCHML_FLOAT32 + 1 ? "float32"
                             : type == SWITCHML_INT32 + 1 ? "int32"
                             : type == kExactFloat32      ? "exactly summed float32"
                                                          : "unknown";
    return std::to_string(numel) + " " + name + " elements as job " + std::to_string(words[1] >> 16);
}

}  // namespace

void write_description(const Description &own, std::uint32_t rank, std::uint8_t *values, std::uint32_t packet_numel) {
    std::memset(values, 0, 4 * std::size_t{packet_numel});
    const Words words = pack(own);
    const std::array<std::int32_t, kDescriptionWords> signed_words{static_cast<std::int32_t>(words[0]),
                                                                   static_cast<std::int32_t>(words[1])};
    wire::value_kernels().store(values + 4 * std::size_t{kDescriptionWords} * rank, signed_words.data(),
                                kDescriptionWords);
}

std::optional<std::string> find_difference(const Description &own, const std::uint8_t *sums,
                                           std::uint32_t num_workers) {
    std::array<std::int32_t, kDescriptionWords * wire::kMaxWorkers> all{};
    wire::value_kernels().load(all.data(), sums, std::size_t{kDescriptionWords} * num_workers);
    std::map<Words, std::string> ranks_by_job;
    for (std::uint32_t rank = 0; rank < num_workers; ++rank) {
        const Words words{static_cast<std::uint32_t>(all[kDescriptionWords * rank]),
                          static_cast<std::uint32_t>(all[kDescriptionWords * rank + 1])};
        std::string &ranks = ranks_by_job[words];
        ranks += (ranks.empty() ? "rank " : ", ") + std::to_string(rank);
    }
    if (ranks_by_job.size() == 1 && ranks_by_job.begin()->first == pack(own)) return std::nullopt;
    std::string text;
    for (const auto &[words, ranks] : ranks_by_job) {
        text += (text.empty() ? "" : "; ") + ranks + ": " + describe(words);
    }
    return text;
}

}  // namespace switchml::udp
