// SPDX-License-Identifier: BSD-3-Clause
//
// The account of who carried what in this process, and its file: as
// torch_switchml.stats() has it, as far as there is something to count here.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "SwitchMLSession.hpp"

namespace c10d {
namespace switchml_detail {

constexpr std::array<const char *, 2> kDtypes = {{"float32", "int32"}};
constexpr std::array<const char *, 6> kFallbacks = {
    {"group", "several_tensors", "reduce_op", "sparse", "device", "dtype"}};

// Of the process: a report survives the groups it speaks of.
struct Counters {
    std::array<std::atomic<uint64_t>, kDtypes.size()> jobs{};
    std::array<std::atomic<uint64_t>, kDtypes.size()> elements{};
    std::array<std::atomic<uint64_t>, kFallbacks.size()> fallbacks{};
    std::atomic<uint64_t> failed{0};
    std::atomic<uint64_t> copied{0};
};

Counters &counters();

// What a session says of itself.
struct SessionReport {
    int rank = 0;
    int size = 0;
    std::string controller;
    std::string failure;  // empty: none
    std::string library;  // JSON objects of libswitchml's
    std::string transport;
};

// As JSON; `session` is null where there was none.
std::string composeReport(const SessionReport *session);

// A reader sees the old file or the whole new one. Losing it must not fail the
// work that was done: what goes wrong is said on stderr.
void writeReport(const std::string &path, const std::string &report);

}  // namespace switchml_detail
}  // namespace c10d
