// SPDX-License-Identifier: BSD-3-Clause
#include "elements.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/bit_cast.h>
#include <c10/util/complex.h>

#include "library.h"

namespace torch_mpi {

namespace {

using Kind = c10d::ReduceOp::RedOpType;

// Below the size from which ATen starts threads of its own.
constexpr int64_t kBlock = 16384;

// Sums and products of 16-bit floats by ATen's kernels, which are those of the processor at hand. Each step rounds
// once, as PyTorch's own sums do.
template <at::ScalarType type, Kind kind>
void combine_halves(void *from, void *into, int64_t count) {
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);  // of the thread that waits: it holds MPI's lock
    auto *const source = static_cast<char *>(from);
    auto *const target = static_cast<char *>(into);
    for (int64_t start = 0; start < count; start += kBlock) {
        const int64_t numel = std::min<int64_t>(kBlock, count - start);
        at::Tensor result = at::from_blob(target + 2 * start, {numel}, at::TensorOptions(type));
        const at::Tensor other = at::from_blob(source + 2 * start, {numel}, at::TensorOptions(type));
        if (kind == Kind::PRODUCT) {
            result.mul_(other);
        } else {
            result.add_(other);
        }
    }
}

// The extreme of two floats is what IEEE 754 calls their maximum and minimum: NaN where one is NaN, as torch.maximum
// has it, and 0.0 above -0.0. MPI gives the ranks the same operands in different orders, so that all ranks have the
// same bits only if the order does not matter, nor which NaN it is: a NaN becomes the one of which all bits are set.
// MPI_MAX and MPI_MIN keep a NaN or lose it by that order. The loops have no branches, so that they become vectors.
template <Kind kind, typename Number>
Number extreme_number(Number one, Number other) {
    return (kind == Kind::MAX ? one > other : one < other) ? one : other;
}

template <Kind kind, typename Float, typename Word>
void take_extremes(void *from, void *into, int64_t count) {
    const auto *const __restrict source = static_cast<const Float *>(from);
    auto *const __restrict target = static_cast<Float *>(into);
    for (int64_t index = 0; index < count; ++index) {
        const Float one = source[index];
        const Float other = target[index];
        // two zeros of different signs, of which each order gives the other one
        const auto first = c10::bit_cast<Word>(extreme_number<kind>(one, other));
        const auto second = c10::bit_cast<Word>(extreme_number<kind>(other, one));
        const Word extreme = kind == Kind::MAX ? first & second : first | second;
        target[index] = c10::bit_cast<Float>(extreme | (std::isunordered(one, other) ? ~Word{0} : Word{0}));
    }
}

// A float's bits as a number of the same order, -0.0 one below 0.0; and back.
constexpr int16_t ordered(int16_t bits) { return static_cast<int16_t>(bits ^ ((bits >> 15) & INT16_MAX)); }

// Of floats that have 16 bits, and these in infinity.
template <Kind kind, int16_t infinity>
void take_extremes_of_halves(void *from, void *into, int64_t count) {
    const auto *const __restrict source = static_cast<const int16_t *>(from);
    auto *const __restrict target = static_cast<int16_t *>(into);
    for (int64_t index = 0; index < count; ++index) {
        const int16_t one = source[index];
        const int16_t other = target[index];
        const int16_t extreme = ordered(extreme_number<kind>(ordered(one), ordered(other)));
        const bool has_nan = extreme_number<Kind::MAX>(one & INT16_MAX, other & INT16_MAX) > infinity;
        target[index] = static_cast<int16_t>(extreme | (has_nan ? -1 : 0));
    }
}

// Sums of integers wrap around, as PyTorch's do, with or without sign. Open MPI's of 8 and 16 bits stop at the largest.
template <typename Word>
void add_words(void *from, void *into, int64_t count) {
    const auto *const __restrict source = static_cast<const Word *>(from);
    auto *const __restrict target = static_cast<Word *>(into);
    for (int64_t index = 0; index < count; ++index) {
        target[index] = static_cast<Word>(target[index] + source[index]);
    }
}

// Of integers without sign, which MPICH 4.0 compares as if they had one.
template <Kind kind, typename Word>
void take_extremes_of_words(void *from, void *into, int64_t count) {
    const auto *const __restrict source = static_cast<const Word *>(from);
    auto *const __restrict target = static_cast<Word *>(into);
    for (int64_t index = 0; index < count; ++index) {
        target[index] = extreme_number<kind>(source[index], target[index]);
    }
}

// Products of complex numbers as PyTorch has them: NaN where C's own rules, which MPI's libraries follow, find an
// infinity.
template <typename Float>
void multiply_complex(void *from, void *into, int64_t count) {
    const auto *const __restrict source = static_cast<const c10::complex<Float> *>(from);
    auto *const __restrict target = static_cast<c10::complex<Float> *>(into);
    for (int64_t index = 0; index < count; ++index) {
        target[index] *= source[index];
    }
}

constexpr int16_t kInfinityOfHalf = 0x7c00;
constexpr int16_t kInfinityOfBFloat16 = 0x7f80;

// What there is of ours in MPI.
MPI_Datatype two_bytes = MPI_DATATYPE_NULL;
std::map<std::pair<at::ScalarType, Kind>, MPI_Op> ops_of_ours;

// An MPI_User_function, or with MPI_Count that of MPI 4's large calls.
template <void (*combine)(void *, void *, int64_t), typename Count>
void combine_all(void *from, void *into, Count *count, MPI_Datatype * /*type*/) {
    combine(from, into, *count);
}

using CreateLargeOp = int (*)(void (*)(void *, void *, MPI_Count *, MPI_Datatype *), int, MPI_Op *);

template <void (*combine)(void *, void *, int64_t)>
void make_op(at::ScalarType type, Kind kind) {
    MPI_Op &op = ops_of_ours[{type, kind}];
    if (const auto create = find_function<CreateLargeOp>("MPI_Op_create_c")) {
        check(create(combine_all<combine, MPI_Count>, 1, &op), "MPI_Op_create_c");
    } else {
        check(MPI_Op_create(combine_all<combine, int>, 1, &op), "MPI_Op_create");
    }
}

template <at::ScalarType type, int16_t infinity>
void make_ops_of_halves() {
    make_op<combine_halves<type, Kind::SUM>>(type, Kind::SUM);
    make_op<combine_halves<type, Kind::PRODUCT>>(type, Kind::PRODUCT);
    make_op<take_extremes_of_halves<Kind::MIN, infinity>>(type, Kind::MIN);
    make_op<take_extremes_of_halves<Kind::MAX, infinity>>(type, Kind::MAX);
}

template <at::ScalarType type, typename Float, typename Word>
void make_ops_of_floats() {
    make_op<take_extremes<Kind::MIN, Float, Word>>(type, Kind::MIN);
    make_op<take_extremes<Kind::MAX, Float, Word>>(type, Kind::MAX);
}

template <at::ScalarType type, typename Word>
void make_ops_of_words() {
    make_op<take_extremes_of_words<Kind::MIN, Word>>(type, Kind::MIN);
    make_op<take_extremes_of_words<Kind::MAX, Word>>(type, Kind::MAX);
}

MPI_Datatype number_type(at::ScalarType type) {
    switch (type) {
        case at::kChar: return MPI_INT8_T;
        case at::kByte: return MPI_UINT8_T;
        case at::kShort: return MPI_INT16_T;
        case at::kUInt16: return MPI_UINT16_T;
        case at::kInt: return MPI_INT32_T;
        case at::kUInt32: return MPI_UINT32_T;
        case at::kLong: return MPI_INT64_T;
        case at::kUInt64: return MPI_UINT64_T;
        case at::kFloat: return MPI_FLOAT;
        case at::kDouble: return MPI_DOUBLE;
        case at::kComplexFloat: return MPI_C_FLOAT_COMPLEX;
        case at::kComplexDouble: return MPI_C_DOUBLE_COMPLEX;
        case at::kBool: return MPI_C_BOOL;
        default: return MPI_DATATYPE_NULL;
    }
}

MPI_Op number_op(Kind kind, at::ScalarType type) {
    const bool is_integer = at::isIntegralType(type, /*includeBool=*/false);
    switch (kind) {
        case Kind::SUM: return MPI_SUM;
        case Kind::PRODUCT: return MPI_PROD;
        case Kind::MIN: return is_integer ? MPI_MIN : MPI_OP_NULL;
        case Kind::MAX: return is_integer ? MPI_MAX : MPI_OP_NULL;
        case Kind::BAND: return is_integer ? MPI_BAND : MPI_OP_NULL;
        case Kind::BOR: return is_integer ? MPI_BOR : MPI_OP_NULL;
        case Kind::BXOR: return is_integer ? MPI_BXOR : MPI_OP_NULL;
        default: return MPI_OP_NULL;
    }
}

// MPI knows logical values by logical operations alone.
MPI_Op truth_op(Kind kind) {
    switch (kind) {
        case Kind::SUM:
        case Kind::MAX:
        case Kind::BOR: return MPI_LOR;
        case Kind::PRODUCT:
        case Kind::MIN:
        case Kind::BAND: return MPI_LAND;
        case Kind::BXOR: return MPI_LXOR;
        default: return MPI_OP_NULL;
    }
}

MPI_Op op_for(Kind kind, at::ScalarType type) {
    if (const auto ours = ops_of_ours.find({type, kind}); ours != ops_of_ours.end()) {
        return ours->second;
    }
    switch (type) {
        case at::kHalf:
        case at::kBFloat16: return MPI_OP_NULL;
        case at::kBool: return truth_op(kind);
        default: return number_op(kind, type);
    }
}

MPI_Datatype type_for(at::ScalarType type) {
    return type == at::kHalf || type == at::kBFloat16 ? two_bytes : number_type(type);
}

at::Tensor factor_of(const c10d::ReduceOp &op, at::ScalarType type) {
    const auto *const supplement = static_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    if (supplement->tensor_factor.defined()) {
        // of one element, whose dimensions would become the product's
        return supplement->tensor_factor.detach().cpu().reshape({});
    }
    return at::scalar_tensor(supplement->double_factor, at::TensorOptions(type));
}

const char *name_of(Kind kind) {
    switch (kind) {
        case Kind::SUM: return "SUM";
        case Kind::AVG: return "AVG";
        case Kind::PRODUCT: return "PRODUCT";
        case Kind::MIN: return "MIN";
        case Kind::MAX: return "MAX";
        case Kind::BAND: return "BAND";
        case Kind::BOR: return "BOR";
        case Kind::BXOR: return "BXOR";
        case Kind::PREMUL_SUM: return "PREMUL_SUM";
        default: return "this operation";
    }
}

}  // namespace

MPI_Datatype moved_as(const at::Tensor &tensor) {
    switch (tensor.element_size()) {
        case 1: return MPI_BYTE;
        case 2: return MPI_INT16_T;
        case 4: return MPI_INT32_T;
        case 8: return MPI_INT64_T;
        case 16: return MPI_C_DOUBLE_COMPLEX;
        default: C10_THROW_ERROR(TypeError, "MPI moves no elements of " + std::string(tensor.dtype().name()));
    }
}

void make_elements() {
    check(MPI_Type_contiguous(2, MPI_BYTE, &two_bytes), "MPI_Type_contiguous");
    check(MPI_Type_commit(&two_bytes), "MPI_Type_commit");
    make_ops_of_halves<at::kHalf, kInfinityOfHalf>();
    make_ops_of_halves<at::kBFloat16, kInfinityOfBFloat16>();
    make_ops_of_floats<at::kFloat, float, uint32_t>();
    make_ops_of_floats<at::kDouble, double, uint64_t>();
    make_ops_of_words<at::kByte, uint8_t>();
    make_ops_of_words<at::kUInt16, uint16_t>();
    make_ops_of_words<at::kUInt32, uint32_t>();
    make_ops_of_words<at::kUInt64, uint64_t>();
    make_op<multiply_complex<float>>(at::kComplexFloat, Kind::PRODUCT);
    make_op<multiply_complex<double>>(at::kComplexDouble, Kind::PRODUCT);
    make_op<add_words<uint8_t>>(at::kChar, Kind::SUM);
    make_op<add_words<uint8_t>>(at::kByte, Kind::SUM);
    make_op<add_words<uint16_t>>(at::kShort, Kind::SUM);
    make_op<add_words<uint16_t>>(at::kUInt16, Kind::SUM);
}

void free_elements() {
    for (auto &[of, op] : ops_of_ours) {
        MPI_Op_free(&op);
    }
    ops_of_ours.clear();
    MPI_Type_free(&two_bytes);
}

Reduction reduction_of(const c10d::ReduceOp &op, at::ScalarType type) {
    const auto asked = static_cast<Kind>(op);
    const bool scales = asked == Kind::AVG || asked == Kind::PREMUL_SUM;
    Reduction reduction;
    reduction.type = type_for(type);
    if (!scales || at::isFloatingType(type) || at::isComplexType(type)) {
        reduction.op = op_for(scales ? Kind::SUM : asked, type);
    }
    if (reduction.type == MPI_DATATYPE_NULL || reduction.op == MPI_OP_NULL) {
        C10_THROW_ERROR(TypeError,
                        std::string("MPI cannot reduce ") + at::toString(type) + " tensors with " + name_of(asked));
    }
    reduction.average = asked == Kind::AVG;
    if (asked == Kind::PREMUL_SUM) {
        reduction.factor = factor_of(op, type);
    }
    return reduction;
}

}  // namespace torch_mpi
