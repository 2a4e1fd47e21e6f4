// SPDX-License-Identifier: BSD-3-Clause
#include "session.h"

#include <unistd.h>

#include <stdexcept>
#include <system_error>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

namespace torch_switchml {

namespace {

switchml_dtype wire_dtype(Dtype dtype) {
  return dtype == Dtype::kFloat32 ? SWITCHML_FLOAT32 : SWITCHML_INT32;
}

std::exception_ptr backend_error(const std::string& message) {
  return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, message));
}

// Works run below autograd, so that writing a result back neither records a
// gradient nor refuses a leaf or an inference tensor.
void write_back(const at::Tensor& tensor, const at::Tensor& staging) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  tensor.copy_(staging);
}

// A contiguous copy of a tensor that is not; undefined for one that is.
at::Tensor stage(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return {};
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor staging = at::empty(tensor.sizes(), tensor.options());
  staging.copy_(tensor);
  return staging;
}

} // namespace

struct Session::Job {
  std::shared_ptr<Session> session; // a callback may drop every other reference
  c10::intrusive_ptr<DelegatedWork> work;
  at::Tensor tensor;
  at::Tensor staging;
  Dtype dtype;

  uint64_t numel() const { return static_cast<uint64_t>(tensor.numel()); }

  void* data() {
    static float nothing = 0; // the library takes no null buffer, also for no elements
    if (tensor.numel() == 0) {
      return &nothing;
    }
    return staging.defined() ? staging.mutable_data_ptr() : tensor.mutable_data_ptr();
  }

  std::string describe() const {
    return "SwitchML allreduce of " + std::to_string(numel()) + " " + dtype_name(dtype) + " elements";
  }
};

std::shared_ptr<Session> Session::open(
    std::shared_ptr<Library> library,
    std::shared_ptr<Counters> counters,
    const SessionOptions& options,
    std::function<void()> on_closed) {
  std::shared_ptr<Session> session(
      new Session(std::move(library), std::move(counters), options, std::move(on_closed)));
  session->open_context();
  return session;
}

Session::Session(
    std::shared_ptr<Library> library,
    std::shared_ptr<Counters> counters,
    const SessionOptions& options,
    std::function<void()> on_closed)
    : library_(std::move(library)),
      counters_(std::move(counters)),
      options_(options),
      owner_(getpid()),
      on_closed_(std::move(on_closed)),
      pool_(std::make_unique<CompletionPool>()) {
  last_stats_.struct_size = sizeof(last_stats_);
}

Session::~Session() {
  close();
}

void Session::open_context() {
  switchml_config config{};
  config.struct_size = sizeof(config);
  config.rank = static_cast<uint32_t>(options_.rank);
  config.num_workers = static_cast<uint32_t>(options_.size);
  config.job_timeout_ms = options_.job_timeout_ms;
  const switchml_status status = library_->open(&config, &context_);
  if (status != SWITCHML_OK) {
    context_ = nullptr;
    on_closed_ = nullptr;
    throw std::runtime_error(
        "cannot open the SwitchML session: " + library_->explain(status, library_->last_error()));
  }
}

c10::intrusive_ptr<c10d::Work> Session::submit(
    const at::Tensor& tensor,
    Dtype dtype,
    uint64_t sequence_number) {
  auto job = std::make_unique<Job>();
  job->session = shared_from_this();
  job->work = c10::make_intrusive<DelegatedWork>(options_.rank, tensor, sequence_number);
  job->tensor = tensor;
  job->staging = stage(tensor);
  job->dtype = dtype;
  if (job->staging.defined()) {
    counters_->count_copied();
  }
  c10::intrusive_ptr<c10d::Work> work = job->work;
  const std::lock_guard<std::mutex> lock(context_mutex_);
  check_usable();
  hand_over(std::move(job));
  return work;
}

void Session::check_usable() const {
  TORCH_CHECK_WITH(
      DistBackendError,
      !closed_ && owner_ == getpid(),
      "SwitchML: the session of the default process group is closed in this process; "
      "initialise the process group again");
  const auto reason = failure();
  TORCH_CHECK_WITH(
      DistBackendError,
      !reason,
      "SwitchML: the session of the default process group failed before (",
      reason.value_or(""),
      "); destroy the process group on all ranks and initialise it again");
}

void Session::hand_over(std::unique_ptr<Job> job) {
  {
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    pending_.insert(job->work);
    ++in_library_;
    ++submitted_;
  }
  void* const data = job->data();
  const switchml_status status = library_->allreduce_submit(
      context_, data, data, job->numel(), wire_dtype(job->dtype), &Session::on_done, job.get());
  if (status == SWITCHML_OK) {
    job.release(); // the library's until on_done
    return;
  }
  const auto error = record_end(*job, status, library_->last_error());
  const std::lock_guard<std::mutex> lock(jobs_mutex_);
  pending_.erase(job->work);
  TORCH_CHECK_WITH(DistBackendError, false, error.value_or(""));
}

void Session::on_done(void* user, switchml_status status, const char* message) noexcept {
  const std::shared_ptr<Job> job(static_cast<Job*>(user));
  Session& session = *job->session;
  const auto task = [job, error = session.record_end(*job, status, message)] {
    job->session->complete(*job, error);
  };
  try {
    session.pool_->post(task);
  } catch (const std::system_error&) {
    task(); // no thread to be had: better on the library's than never
  }
}

std::optional<std::string> Session::record_end(
    const Job& job,
    switchml_status status,
    const char* message) {
  std::optional<std::string> error;
  if (status == SWITCHML_OK) {
    counters_->count_completed(job.dtype, job.numel());
  } else {
    error = job.describe() + " failed: " + library_->explain(status, message);
    counters_->count_failed();
  }
  const std::lock_guard<std::mutex> lock(jobs_mutex_);
  if (error && !failure_) {
    failure_ = error;
  }
  --in_library_;
  drained_.notify_all();
  return error;
}

void Session::complete(Job& job, const std::optional<std::string>& error) {
  std::exception_ptr failure = error ? backend_error(*error) : nullptr;
  try {
    if (!failure && job.staging.defined()) {
      write_back(job.tensor, job.staging);
    }
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  {
    // Before its callbacks run: one that calls barrier() must not wait for itself.
    const std::lock_guard<std::mutex> lock(jobs_mutex_);
    pending_.erase(job.work);
  }
  job.work->complete(failure);
}

std::vector<c10::intrusive_ptr<c10d::Work>> Session::pending() const {
  const std::lock_guard<std::mutex> lock(jobs_mutex_);
  return {pending_.begin(), pending_.end()};
}

uint64_t Session::submitted() const {
  const std::lock_guard<std::mutex> lock(jobs_mutex_);
  return submitted_;
}

std::optional<std::string> Session::failure() const {
  const std::lock_guard<std::mutex> lock(jobs_mutex_);
  return failure_;
}

switchml_stats Session::library_stats() const {
  const std::lock_guard<std::mutex> lock(context_mutex_);
  switchml_stats stats = last_stats_;
  if (context_ != nullptr) {
    library_->get_stats(context_, &stats);
  }
  return stats;
}

void Session::abort() {
  const std::lock_guard<std::mutex> lock(context_mutex_);
  if (context_ != nullptr && owner_ == getpid()) {
    library_->abort(context_);
  }
}

void Session::close() {
  {
    const std::lock_guard<std::mutex> lock(context_mutex_);
    if (std::exchange(closed_, true)) {
      return;
    }
  }
  if (owner_ != getpid()) {
    (void)pool_.release(); // its threads exist in the parent only
    return;
  }
  drain();
  end_context();
  pool_->stop();
  if (on_closed_) {
    std::exchange(on_closed_, nullptr)();
  }
}

void Session::drain() {
  std::unique_lock<std::mutex> lock(jobs_mutex_);
  drained_.wait(lock, [this] { return in_library_ == 0; });
}

void Session::end_context() {
  switchml_context* context = nullptr;
  {
    const std::lock_guard<std::mutex> lock(context_mutex_);
    if (context_ == nullptr) {
      return; // it never opened
    }
    library_->get_stats(context_, &last_stats_);
    context = std::exchange(context_, nullptr);
  }
  library_->close(context);
}

} // namespace torch_switchml
