// SPDX-License-Identifier: BSD-3-Clause
#include "elements.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "library.h"

namespace torch_mpi {

namespace {

using Kind = c10d::ReduceOp::RedOpType;

// Below the size from which ATen starts threads of its own.
constexpr int64_t kBlock = 16384;

void reduce_block(Kind kind, at::Tensor &into, const at::Tensor &from) {
    switch (kind) {
        case Kind::PRODUCT: into.mul_(from); return;
        case Kind::MIN: at::minimum_out(into, into, from); return;
        case Kind::MAX: at::maximum_out(into, into, from); return;
        default: into.add_(from); return;
    }
}

// An MPI_User_function over ATen's kernels, which are those of the processor at
// hand. Each step rounds once, as PyTorch's own sums do.
template <at::ScalarType type, Kind kind>
void reduce_words(void *from, void *into, int *count, MPI_Datatype * /*type*/) {
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);  // of the thread that waits: it holds MPI's lock
    auto *const source = static_cast<char *>(from);
    auto *const target = static_cast<char *>(into);
    for (int64_t start = 0; start < *count; start += kBlock) {
        const int64_t numel = std::min<int64_t>(kBlock, *count - start);
        at::Tensor result = at::from_blob(target + 2 * start, {numel}, at::TensorOptions(type));
        reduce_block(kind, result, at::from_blob(source + 2 * start, {numel}, at::TensorOptions(type)));
    }
}

// What there is of ours in MPI.
MPI_Datatype two_bytes = MPI_DATATYPE_NULL;
std::map<std::pair<at::ScalarType, Kind>, MPI_Op> ops_of_ours;

template <at::ScalarType type, Kind kind>
void make_op() {
    check(MPI_Op_create(reduce_words<type, kind>, 1, &ops_of_ours[{type, kind}]), "MPI_Op_create");
}

template <at::ScalarType type>
void make_ops() {
    make_op<type, Kind::SUM>();
    make_op<type, Kind::PRODUCT>();
    make_op<type, Kind::MIN>();
    make_op<type, Kind::MAX>();
}

MPI_Op op_of_half_floats(Kind kind, at::ScalarType type) {
    const auto found = ops_of_ours.find({type, kind});
    return found == ops_of_ours.end() ? MPI_OP_NULL : found->second;
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
        case Kind::MIN: return at::isComplexType(type) ? MPI_OP_NULL : MPI_MIN;
        case Kind::MAX: return at::isComplexType(type) ? MPI_OP_NULL : MPI_MAX;
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
    switch (type) {
        case at::kHalf:
        case at::kBFloat16: return op_of_half_floats(kind, type);
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
        return supplement->tensor_factor.cpu();
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
    make_ops<at::kHalf>();
    make_ops<at::kBFloat16>();
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
