// SPDX-License-Identifier: BSD-3-Clause
//
// What a rank does with elements: sums in the order of their sources, and
// results on their way out of the shared memory.
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

// As memcpy, for a part of a tensor of `numel` elements, which the caller gets
// all at once: a large one goes past the caches, which could not keep it until
// it is read and whose content the next parts need.
void copy_result(char *to, const char *from, uint64_t bytes, uint64_t numel);

}  // namespace torch_switchml
