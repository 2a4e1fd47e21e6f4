// SPDX-License-Identifier: BSD-3-Clause
//
// Sums of elements in the order of their sources.
#pragma once

#include <cstdint>
#include <vector>

#include "counters.h"

namespace torch_switchml {

// out[i] = sources[0][i] + sources[1][i] + ... for `numel` elements of 4 bytes.
// int32 wraps; float32 is added from left to right, each sum rounded to the
// nearest. No buffer needs an alignment beyond its elements'; `out` overlaps
// no source.
void sum_sources(char *out, const std::vector<const char *> &sources, uint64_t numel, Dtype dtype);

}  // namespace torch_switchml
