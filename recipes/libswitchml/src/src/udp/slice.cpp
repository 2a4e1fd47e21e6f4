// SPDX-License-Identifier: BSD-3-Clause
#include "slice.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "wire/values.hpp"

namespace switchml::udp {
namespace {

std::uint64_t count_data_units(std::uint64_t numel, std::uint32_t packet_numel) {
    return numel / packet_numel + (numel % packet_numel != 0 ? 1 : 0);
}

}  // namespace

std::uint64_t count_units(std::uint64_t numel, switchml_dtype dtype, std::uint32_t packet_numel, std::uint32_t window) {
    const std::uint64_t data_units = count_data_units(numel, packet_numel);
    return data_units + (dtype == SWITCHML_FLOAT32 ? std::min<std::uint64_t>(data_units, window) : 0);
}

Slice::Slice(const SliceData &data, const SlotRing &ring, std::uint32_t packet_numel, std::uint32_t num_workers)
    : data_(data),
      ring_(ring),
      packet_numel_(packet_numel),
      num_workers_(num_workers),
      data_units_(static_cast<std::uint32_t>(count_data_units(data.numel, packet_numel))),
      lanes_(std::min(ring.window(), data_units_)),
      units_(static_cast<std::uint32_t>(count_units(data.numel, data.dtype, packet_numel, ring.window()))),
      state_(lanes_) {}

std::uint32_t Slice::numel_at(std::uint32_t data_unit) const {
    const std::uint64_t first = std::uint64_t{data_unit} * packet_numel_;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(packet_numel_, data_.numel - first));
}

bool Slice::has_result(std::uint32_t unit) const {
    const Lane &lane = lane_of(unit);
    if (lane.unit == kNone) return false;
    return lane.unit > unit || (lane.unit == unit && !lane.outstanding);
}

bool Slice::ready(std::uint32_t unit) const {
    if (unit >= units_) return false;
    const Lane &lane = lane_of(unit);
    if (lane.unit != kNone && lane.unit >= unit) return false;  // sent already
    const bool data_known = unit < lanes_ || has_result(unit - lanes_);
    const bool slot_free = unit < ring_.window() || has_result(unit - ring_.window());
    return data_known && slot_free;
}

Exponents Slice::exponents_at(std::uint32_t data_unit) const {
    const float *from = static_cast<const float *>(data_.in) + std::uint64_t{data_unit} * packet_numel_;
    return exponents_of(wire::value_kernels().max_magnitude(from, numel_at(data_unit)));
}

void Slice::build_float(std::uint32_t unit, wire::Header &header, std::uint8_t *values) const {
    const Exponents exponents = unit < data_units_ ? exponents_at(unit) : Exponents{kLowestExponent, kPlain};
    header.e0 = exponents.e0;
    header.e1 = exponents.e1;
    std::uint32_t filled = 0;
    if (unit >= lanes_) {
        const std::uint32_t data_unit = unit - lanes_;
        const Scale scale = scale_for(lane_of(unit).maximum, num_workers_);
        if (scale.finite) {
            filled = numel_at(data_unit);
            const float *from = static_cast<const float *>(data_.in) + std::uint64_t{data_unit} * packet_numel_;
            wire::value_kernels().quantize(values, from, filled, scale.scale, scale.limit);
        }
    }
    std::memset(values + 4 * std::size_t{filled}, 0, 4 * std::size_t{packet_numel_ - filled});
}

void Slice::build_int(std::uint32_t unit, std::uint8_t *values) const {
    const std::uint32_t filled = numel_at(unit);
    const auto *from = static_cast<const std::int32_t *>(data_.in) + std::uint64_t{unit} * packet_numel_;
    wire::value_kernels().store(values, from, filled);
    std::memset(values + 4 * std::size_t{filled}, 0, 4 * std::size_t{packet_numel_ - filled});
}

void Slice::build(std::uint32_t unit, std::uint8_t *packet) const {
    const Place place = ring_.place(unit);
    wire::Header header;
    header.size_class = wire::size_class_of(packet_numel_);
    header.job = data_.job;
    header.packet = unit;
    header.slot = place.slot;
    header.set = place.set;
    if (is_float()) {
        build_float(unit, header, packet + wire::kHeaderBytes);
    } else {
        build_int(unit, packet + wire::kHeaderBytes);
    }
    wire::encode(header, packet);
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

bool Slice::accept(const wire::Header &header, const std::uint8_t *values) {
    if (header.job != data_.job || header.packet >= units_) return false;
    if (header.size_class != wire::size_class_of(packet_numel_)) return false;
    Lane &lane = lane_of(header.packet);
    const Place place = ring_.place(header.packet);
    if (!lane.outstanding || lane.unit != header.packet) return false;
    if (place.slot != header.slot || place.set != header.set) return false;
    if (!is_float()) {
        auto *to = static_cast<std::int32_t *>(data_.out) + std::uint64_t{header.packet} * packet_numel_;
        wire::value_kernels().load(to, values, numel_at(header.packet));
    } else if (header.packet >= lanes_) {
        take_float(header.packet - lanes_, values);
    }
    lane.outstanding = false;
    lane.maximum = {header.e0, header.e1};
    ++received_;
    return true;
}

}  // namespace switchml::udp
