// SPDX-License-Identifier: BSD-3-Clause
#include "backend.h"

#include <utility>

#include "eligibility.h"
#include "gil.h"

namespace torch_switchml {

namespace {

// One event a call, as gloo's. The first begins with gloo's own title, by which
// tools know an allreduce of a group that says it is gloo's.
constexpr const char *kTitleAsGloo = "gloo:all_reduce (switchml)";
constexpr const char *kTitleAsNamed = "switchml:all_reduce";

Reduction reduction_of(const c10d::ReduceOp &op) {
    Reduction reduction;
    const auto kind = static_cast<c10d::ReduceOp::RedOpType>(op);
    reduction.average = kind == c10d::ReduceOp::AVG;
    if (kind == c10d::ReduceOp::PREMUL_SUM) {
        const auto *const supplement = static_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
        reduction.factor =
            supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
    }
    return reduction;
}

}  // namespace

SwitchMLBackend::SwitchMLBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<Counters> counters,
                                 bool named)
    : Backend(inner->getRank(), inner->getSize()),
      named_(named),
      inner_(std::move(inner)),
      counters_(std::move(counters)) {}

SwitchMLBackend::~SwitchMLBackend() {
    const GilReleased released;  // both wait for callbacks that may be Python's
    if (session_) {
        session_->close();
    }
    inner_.reset();
}

void SwitchMLBackend::attach(std::shared_ptr<Session> session, bool required) {
    session_ = std::move(session);
    required_ = required;
}

void SwitchMLBackend::fall_back(Fallback reason) const {
    counters_->count_fallback(reason);
    TORCH_CHECK_WITH(DistBackendError, !required_,
                     "SWITCHML_REQUIRE is set, and SwitchML cannot carry this allreduce: ", explain_fallback(reason),
                     "; unset SWITCHML_REQUIRE to leave such allreduces to gloo");
}

// The one of a call where it has one, else what setTimeout() said last; 0 means none, as to gloo.
CallLimits::Limit SwitchMLBackend::limit_of(std::chrono::milliseconds timeout) const {
    const std::chrono::milliseconds limit = timeout == c10d::kUnsetTimeout ? timeout_.load() : timeout;
    return limit.count() > 0 ? CallLimits::Limit(limit) : std::nullopt;
}

SwitchMLBackend::WorkPtr SwitchMLBackend::delegate(const Tensors &tensors, const c10d::AllreduceOptions &opts) {
    return session_->submit(tensors, *wire_dtype_of(tensors.front().scalar_type()),
                            {reduction_of(opts.reduceOp), getSequenceNumberForGroup(),
                             named_ ? kTitleAsNamed : kTitleAsGloo, limit_of(opts.timeout)});
}

SwitchMLBackend::WorkPtr SwitchMLBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    const auto reason = session_ ? reason_to_fall_back(tensors, opts.reduceOp, false) : Fallback::kGroup;
    if (reason) {
        fall_back(*reason);
        return leave_allreduce(tensors, opts);
    }
    return delegate(tensors, opts);
}

SwitchMLBackend::WorkPtr SwitchMLBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    fall_back(session_ ? Fallback::kSparse : Fallback::kGroup);
    return leave(tensors, [&] { return inner_->allreduce_sparse(tensors, opts); });
}

SwitchMLBackend::WorkPtr SwitchMLBackend::allreduce_coalesced(Tensors &tensors,
                                                              const c10d::AllreduceCoalescedOptions &opts) {
    const auto reason = session_ ? reason_to_fall_back(tensors, opts.reduceOp, true) : Fallback::kGroup;
    if (reason) {
        fall_back(*reason);
        return leave_allreduce_coalesced(tensors, opts);
    }
    return delegate(tensors, opts);
}

SwitchMLBackend::WorkPtr SwitchMLBackend::barrier(const c10d::BarrierOptions &opts) {
    auto before = session_ ? session_->pending() : std::vector<WorkPtr>();
    auto barrier = inner_->barrier(opts);
    if (before.empty()) {
        return barrier;
    }
    return c10::make_intrusive<BarrierWork>(rank_, std::move(barrier), std::move(before));
}

// Counts the delegated collectives too, so that the number moves with every
// collective as it does without SwitchML.
uint64_t SwitchMLBackend::getSequenceNumberForGroup() { return inner_->getSequenceNumberForGroup() + delegated(); }

const std::string SwitchMLBackend::getBackendName() const { return named_ ? "switchml" : inner_->getBackendName(); }

bool SwitchMLBackend::supportsSplitting() const { return inner_->supportsSplitting(); }

void SwitchMLBackend::startCoalescing() { inner_->startCoalescing(); }

SwitchMLBackend::WorkPtr SwitchMLBackend::endCoalescing() { return inner_->endCoalescing(); }

void SwitchMLBackend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) {
    inner_->monitoredBarrier(opts, wait_all_ranks);
}

void SwitchMLBackend::setSequenceNumberForGroup() { inner_->setSequenceNumberForGroup(); }

SwitchMLBackend::WorkPtr SwitchMLBackend::send(Tensors &tensors, int destination, int tag) {
    return inner_->send(tensors, destination, tag);
}

SwitchMLBackend::WorkPtr SwitchMLBackend::recv(Tensors &tensors, int source, int tag) {
    return inner_->recv(tensors, source, tag);
}

SwitchMLBackend::WorkPtr SwitchMLBackend::recvAnysource(Tensors &tensors, int tag) {
    return inner_->recvAnysource(tensors, tag);
}

void SwitchMLBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)> &&hook) {
    inner_->registerOnCompletionHook(std::move(hook));
}

void SwitchMLBackend::waitForPendingWorks() { inner_->waitForPendingWorks(); }

void SwitchMLBackend::enableCollectivesTiming() { inner_->enableCollectivesTiming(); }

void SwitchMLBackend::eagerConnectSingleDevice(at::Device device) { inner_->eagerConnectSingleDevice(device); }

#if TORCH_SWITCHML_SINCE(7)
bool SwitchMLBackend::supportsCoalescing() const { return inner_->supportsCoalescing(); }

c10d::ErrorType SwitchMLBackend::getError() {
    if (session_ && session_->failure()) {
        return c10d::ErrorType::COMM_ERROR;
    }
    return inner_->getError();
}

std::shared_ptr<c10::Allocator> SwitchMLBackend::getMemAllocator() { return inner_->getMemAllocator(); }

at::Tensor SwitchMLBackend::allocateTensor(long size, at::TensorOptions options) {
    return inner_->allocateTensor(size, std::move(options));
}

bool SwitchMLBackend::supportsTensorAlloc(c10::DeviceIndex device) { return inner_->supportsTensorAlloc(device); }

void SwitchMLBackend::abort() {
    if (session_) {
        session_->abort();
    }
    inner_->abort();
}

void SwitchMLBackend::shutdown() {
    const GilReleased released;
    if (session_) {
        session_->close();
    }
    inner_->shutdown();
}
#endif

#if TORCH_SWITCHML_SINCE(8)
bool SwitchMLBackend::supportsTimeEstimation() const { return inner_->supportsTimeEstimation(); }
#endif

#if TORCH_SWITCHML_SINCE(9)
void SwitchMLBackend::setTimeout(std::chrono::milliseconds timeout) {
    timeout_.store(timeout);
    inner_->setTimeout(timeout);
}

c10::intrusive_ptr<c10d::Backend::Options> SwitchMLBackend::getBackendOptions() { return inner_->getBackendOptions(); }

c10::intrusive_ptr<c10d::Backend> SwitchMLBackend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                                         const std::vector<int> &ranks,
                                                         const c10::intrusive_ptr<Options> &opts) {
    return inner_->split(store, ranks, opts);
}

c10::intrusive_ptr<c10d::Backend> SwitchMLBackend::merge(const c10::intrusive_ptr<c10d::Store> &store,
                                                         const c10::intrusive_ptr<Options> &opts, const int &rank,
                                                         const int &size) {
    return inner_->merge(store, opts, rank, size);
}
#endif

#if TORCH_SWITCHML_SINCE(10)
bool SwitchMLBackend::supportsShrinking() const { return inner_->supportsShrinking(); }

c10::intrusive_ptr<c10d::Backend> SwitchMLBackend::shrink(const std::vector<int64_t> &ranks_to_exclude,
                                                          int shrink_flags,
                                                          const c10::intrusive_ptr<Options> &opts_override) {
    return inner_->shrink(ranks_to_exclude, shrink_flags, opts_override);
}

void SwitchMLBackend::setGroupUid(const std::string &group_uid) {
    Backend::setGroupUid(group_uid);
    inner_->setGroupUid(group_uid);
}
#endif

#if TORCH_SWITCHML_SINCE(12)
void SwitchMLBackend::suspend() { inner_->suspend(); }

void SwitchMLBackend::resume() { inner_->resume(); }

std::unordered_map<std::string, uint64_t> SwitchMLBackend::getMemoryStats() { return inner_->getMemoryStats(); }
#endif

}  // namespace torch_switchml
