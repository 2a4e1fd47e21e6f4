// SPDX-License-Identifier: BSD-3-Clause
#include "slice.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "error.hpp"
#include "udp/exact.hpp"
#include "wire/values.hpp"

namespace switchml::udp {
namespace {

std::uint64_t count_data_units(std::uint64_t numel, std::uint32_t packet_numel) {
    return numel / packet_numel + (numel % packet_numel != 0 ? 1 : 0);
}

bool fits_exactly(const SliceData &data, std::uint32_t packet_numel, std::uint32_t num_workers) {
    const std::uint32_t free = packet_numel - kDescriptionWords * num_workers;
    return data.job.dtype == SWITCHML_FLOAT32 && data.numel > 0 && data.numel <= exact_capacity(free);
}

constexpr std::uint32_t kUnitsAhead = 4;  // that are fetched from memory before they are needed
constexpr std::size_t kCacheLineBytes = 64;

void prefetch(const char *from, std::size_t bytes) {
    for (std::size_t offset = 0; offset < bytes; offset += kCacheLineBytes) __builtin_prefetch(from + offset);
}

}  // namespace

std::uint64_t count_units(std::uint64_t numel, switchml_dtype dtype, std::uint32_t packet_numel, std::uint32_t window) {
    const std::uint64_t data_units = count_data_units(numel, packet_numel);
    if (dtype == SWITCHML_INT32 || data_units == 0) return data_units + 1;
    return data_units + std::min<std::uint64_t>(data_units, window);
}

Slice::Slice(const SliceData &data, const SlotRing &ring, std::uint32_t packet_numel, std::uint32_t num_workers,
             const Slice *ahead)
    : data_(data),
      ring_(ring),
      packet_numel_(packet_numel),
      num_workers_(num_workers),
      ahead_(ahead),
      data_units_(static_cast<std::uint32_t>(count_data_units(data.numel, packet_numel))),
      lanes_(std::min(ring.window(), is_float() ? std::max(data_units_, 1U) : data_units_ + 1)),
      lead_(is_float() ? lanes_ : 1),
      units_(static_cast<std::uint32_t>(count_units(data.numel, data.job.dtype, packet_numel, ring.window()))),
      state_(lanes_) {
    data_.job.exact = fits_exactly(data, packet_numel, num_workers);
    if (data_.job.exact) units_ = 1;
}

std::uint32_t Slice::numel_at(std::uint32_t data_unit) const {
    const std::uint64_t first = std::uint64_t{data_unit} * packet_numel_;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(packet_numel_, data_.numel - first));
}

bool Slice::has_result(std::uint32_t unit) const {
    const Lane &lane = lane_of(unit);
    if (lane.unit == kNone) return false;
    return lane.unit > unit || (lane.unit == unit && !lane.outstanding);
}

bool Slice::slot_is_free(std::uint32_t unit) const {
    if (unit >= ring_.window()) return has_result(unit - ring_.window());
    if (ahead_ == nullptr) return true;
    const std::uint64_t after_slot = std::uint64_t{ahead_->units()} + unit;  // the slot's use before, and a window
    return after_slot < ring_.window() || ahead_->has_result(static_cast<std::uint32_t>(after_slot - ring_.window()));
}

bool Slice::ready(std::uint32_t unit) const {
    if (unit >= units_) return false;
    const Lane &lane = lane_of(unit);
    if (lane.unit != kNone && lane.unit >= unit) return false;  // sent already
    return (unit < lanes_ || has_result(unit - lanes_)) && slot_is_free(unit);
}

// A tensor is read the first time here, a packet at a time, which is too little for processors to see a stream in it.
void Slice::prefetch_after(std::uint32_t data_unit) const {
    const std::uint32_t next = data_unit + kUnitsAhead;
    if (next >= data_units_) return;
    prefetch(static_cast<const char *>(data_.in) + 4 * std::uint64_t{next} * packet_numel_,
             4 * std::size_t{numel_at(next)});
}

Exponents Slice::exponents_at(std::uint32_t data_unit) const {
    if (data_unit >= data_units_) return {kLowestExponent, kPlain};
    const float *from = static_cast<const float *>(data_.in) + std::uint64_t{data_unit} * packet_numel_;
    prefetch_after(data_unit);
    return exponents_of(wire::value_kernels().max_magnitude(from, numel_at(data_unit)));
}

std::uint32_t Slice::quantize(std::uint32_t unit, std::uint8_t *values) const {
    const Scale scale = scale_for(lane_of(unit).maximum, num_workers_);
    if (!scale.finite) return 0;
    const std::uint32_t data_unit = unit - lead_;
    const std::uint32_t filled = numel_at(data_unit);
    const float *from = static_cast<const float *>(data_.in) + std::uint64_t{data_unit} * packet_numel_;
    wire::value_kernels().quantize(values, from, filled, scale.scale, scale.limit);
    return filled;
}

std::uint32_t Slice::store(std::uint32_t unit, std::uint8_t *values) const {
    const std::uint32_t data_unit = unit - lead_;
    const std::uint32_t filled = numel_at(data_unit);
    const auto *from = static_cast<const std::int32_t *>(data_.in) + std::uint64_t{data_unit} * packet_numel_;
    prefetch_after(data_unit);
    wire::value_kernels().store(values, from, filled);
    return filled;
}

void Slice::build(std::uint32_t unit, std::uint8_t *packet) const {
    const Place place = ring_.place(unit);
    wire::Header header;
    header.size_class = wire::size_class_of(packet_numel_);
    header.job = static_cast<std::uint8_t>(data_.job.job);
    header.packet = ring_.number(unit);
    header.slot = place.slot;
    header.set = place.set;
    std::uint8_t *values = packet + wire::kHeaderBytes;
    if (unit == 0) {
        write_description(data_.job, data_.rank, values, packet_numel_);
    } else {
        const std::uint32_t filled = !has_data(unit) ? 0 : is_float() ? quantize(unit, values) : store(unit, values);
        std::memset(values + 4 * std::size_t{filled}, 0, 4 * std::size_t{packet_numel_ - filled});
    }
    if (is_float()) {
        const Exponents exponents = data_.job.exact ? add_exact_values(values) : exponents_at(unit);
        header.e0 = exponents.e0;
        header.e1 = exponents.e1;
    }
    wire::encode(header, packet);
}

Exponents Slice::add_exact_values(std::uint8_t *values) const {
    const bool finite = write_exact(static_cast<const float *>(data_.in), data_.numel, values + described_bytes());
    return {kLowestExponent, finite ? kPlain : kNonFinite};
}

void Slice::take_float(std::uint32_t data_unit, const std::uint8_t *values) {
    float *to = static_cast<float *>(data_.out) + std::uint64_t{data_unit} * packet_numel_;
    const std::uint32_t numel = numel_at(data_unit);
    const Scale scale = scale_for(lane_of(data_unit).maximum, num_workers_);
    if (scale.finite) {
        wire::value_kernels().dequantize(to, values, numel, scale.inverse);
    } else {
        std::fill_n(to, numel, std::numeric_limits<float>::quiet_NaN());
    }
}

void Slice::take_exact(const wire::Header &header, const std::uint8_t *values) const {
    float *to = static_cast<float *>(data_.out);
    if (header.e1 >= kNonFinite) {
        std::fill_n(to, data_.numel, std::numeric_limits<float>::quiet_NaN());
    } else {
        read_exact(values + described_bytes(), data_.numel, to);
    }
}

void Slice::check_description(const std::uint8_t *values) const {
    const auto difference = find_difference(data_.job, values, num_workers_);
    if (!difference) return;
    throw Error(SWITCHML_EMISMATCH, *difference + "; all must submit the same jobs in the same order");
}

std::optional<std::uint32_t> Slice::accept(const wire::Header &header, const std::uint8_t *values) {
    const std::uint32_t unit = ring_.unit(header.packet);
    if (unit >= units_ || header.size_class != wire::size_class_of(packet_numel_)) return std::nullopt;
    Lane &lane = lane_of(unit);
    const Place place = ring_.place(unit);
    if (!lane.outstanding || lane.unit != unit) return std::nullopt;
    if (place.slot != header.slot || place.set != header.set) return std::nullopt;
    if (unit == 0) {
        check_description(values);
        if (data_.job.exact) take_exact(header, values);
    } else if (has_data(unit)) {
        if (is_float()) {
            take_float(unit - lead_, values);
        } else {
            auto *to = static_cast<std::int32_t *>(data_.out) + std::uint64_t{unit - lead_} * packet_numel_;
            wire::value_kernels().load(to, values, numel_at(unit - lead_));
        }
    }
    lane.outstanding = false;
    lane.maximum = {header.e0, header.e1};
    ++received_;
    return unit;
}

}  // namespace switchml::udp
