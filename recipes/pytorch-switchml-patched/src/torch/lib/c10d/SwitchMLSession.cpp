// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLSession.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "SwitchMLAgreement.hpp"
#include "SwitchMLLibrary.hpp"
#include "SwitchMLSettings.hpp"

namespace c10d {

namespace {

using switchml_detail::Agreement;
using switchml_detail::Library;
using switchml_detail::Settings;
using switchml_detail::quote;

constexpr int kMaxWorkers = 32; // the bitmap that the switch keeps per slot
constexpr uint64_t kElementBytes = 4; // float32 and int32 alike
constexpr std::array<const char*, 2> kDtypes = {{"float32", "int32"}};
// of the package that this is part of; a test compares
constexpr const char* kVersion = "1.0.0";
constexpr std::array<const char*, 6> kFallbacks = {
    {"group", "several_tensors", "reduce_op", "sparse", "device", "dtype"}};

// Of the process: a report survives the groups it speaks of.
struct Counters {
  std::array<std::atomic<uint64_t>, kDtypes.size()> jobs{};
  std::array<std::atomic<uint64_t>, kDtypes.size()> elements{};
  std::array<std::atomic<uint64_t>, kFallbacks.size()> fallbacks{};
  std::atomic<uint64_t> failed{0};
  std::atomic<uint64_t> copied{0};
};

Counters& counters() {
  static Counters instance;
  return instance;
}

class Session;

// The session that the report speaks of: the one open, else the last one.
// Never destroyed, because it is read at exit.
struct Current {
  std::mutex mutex;
  std::shared_ptr<Session> session;
};

Current& current() {
  static auto* const instance = new Current();
  return *instance;
}

void writeCurrentReport();

std::string number(const char* name, uint64_t value) {
  return quote(name) + ": " + std::to_string(value);
}

class Session : public SwitchMLSession {
 public:
  Session(std::shared_ptr<Library> library, Settings settings, int rank, int size)
      : library_(std::move(library)),
        settings_(std::move(settings)),
        rank_(rank),
        size_(size),
        owner_(getpid()) {
    lastStats_.struct_size = sizeof(lastStats_);
  }

  ~Session() override {
    try {
      close();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "SwitchML: closing the session: %s\n", error.what());
    }
  }

  void connect(std::chrono::milliseconds groupTimeout) {
    switchml_config config{};
    config.struct_size = sizeof(config);
    config.rank = static_cast<uint32_t>(rank_);
    config.num_workers = static_cast<uint32_t>(size_);
    config.job_timeout_ms = settings_.jobTimeoutMs(groupTimeout);
    const switchml_status status = library_->open(&config, &context_);
    if (status != SWITCHML_OK) {
      context_ = nullptr;
      throw std::runtime_error(
          "cannot open the SwitchML session: " +
          library_->explain(status, library_->lastError()));
    }
    thread_ = std::thread(&Session::work, this);
  }

  void enqueue(std::function<void()> job) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closing_ || owner_ != getpid()) {
        throw std::runtime_error(
            "SwitchML: the session of the default process group is closed in "
            "this process; initialise the process group again");
      }
      jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
  }

  void allreduce(void* data, uint64_t numel, Dtype dtype) override {
    throwIfFailed();
    float nothing = 0; // the library takes no null buffer, also for no elements
    void* const buffer = numel != 0 ? data : &nothing;
    Outcome outcome;
    auto future = outcome.promise.get_future();
    outcome.library = library_.get();
    const switchml_status status = library_->allreduceSubmit(
        context_,
        buffer,
        buffer,
        numel,
        dtype == Dtype::kFloat32 ? SWITCHML_FLOAT32 : SWITCHML_INT32,
        &Session::onDone,
        &outcome);
    const auto index = static_cast<size_t>(dtype);
    const std::string error = status == SWITCHML_OK
        ? future.get()
        : library_->explain(status, library_->lastError());
    if (!error.empty()) {
      fail(
          "SwitchML allreduce of " + std::to_string(numel) + " " +
          kDtypes[index] + " elements failed: " + error);
    }
    counters().jobs[index] += 1;
    counters().elements[index] += numel;
  }

  void countCopied() override {
    counters().copied += 1;
  }

  void close() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closing_) {
        return;
      }
      closing_ = true;
    }
    if (owner_ != getpid()) {
      if (thread_.joinable()) {
        thread_.detach(); // it exists in the parent only
      }
      return;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
      thread_.join();
    }
    const std::lock_guard<std::mutex> lock(contextMutex_);
    if (context_ != nullptr) {
      library_->getStats(context_, &lastStats_);
      library_->close(context_);
      context_ = nullptr;
    }
  }

  std::string describe() const {
    std::string text = quote("rank") + ": " + std::to_string(rank_) +
        ",\n  " + quote("world_size") + ": " + std::to_string(size_) +
        ",\n  " + quote("controller") + ": " + quote(settings_.controller) +
        ",\n  " + quote("library") + ": " + library_->describe() + ",\n  ";
    const std::string failure = this->failure();
    text += quote("failure") + ": " +
        (failure.empty() ? std::string("null") : quote(failure)) + ",\n  ";
    return text + quote("transport") + ": " + describe(stats());
  }

  // Writes SWITCHML_STATS_FILE, if there is one; a reader sees the old file or
  // the whole new one. Losing it must not fail the work that was done.
  void write(const std::string& report) const {
    const std::string path = settings_.statsPath(rank_);
    if (path.empty() || owner_ != getpid()) {
      return;
    }
    const std::string draft = path + "." + std::to_string(owner_) + ".part";
    std::FILE* const file = std::fopen(draft.c_str(), "w");
    bool good = file != nullptr;
    good = good && std::fputs(report.c_str(), file) >= 0;
    good = (file == nullptr || std::fclose(file) == 0) && good;
    good = good && std::rename(draft.c_str(), path.c_str()) == 0;
    if (!good) {
      std::fprintf(
          stderr,
          "SwitchML: cannot write SWITCHML_STATS_FILE %s: %s\n",
          path.c_str(),
          std::strerror(errno));
      std::remove(draft.c_str());
    }
  }

 private:
  struct Outcome {
    std::promise<std::string> promise; // the error; empty for none
    const Library* library = nullptr;
  };

  static void onDone(void* user, switchml_status status, const char* message) {
    auto* const outcome = static_cast<Outcome*>(user);
    outcome->promise.set_value(
        status == SWITCHML_OK ? std::string()
                              : outcome->library->explain(status, message));
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
      if (jobs_.empty()) {
        return;
      }
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::string failure() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }

  void throwIfFailed() const {
    const std::string reason = failure();
    if (!reason.empty()) {
      throw std::runtime_error(
          "SwitchML: the session of the default process group failed before (" +
          reason +
          "); destroy the process group on all ranks and initialise it again");
    }
  }

  void fail(const std::string& reason) {
    counters().failed += 1;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      failure_ = reason;
    }
    throw std::runtime_error(reason);
  }

  switchml_stats stats() const {
    const std::lock_guard<std::mutex> lock(contextMutex_);
    switchml_stats result = lastStats_;
    if (context_ != nullptr) {
      library_->getStats(context_, &result);
    }
    return result;
  }

  static std::string describe(const switchml_stats& stats) {
    return "{" + number("jobs_submitted", stats.jobs_submitted) + ", " +
        number("jobs_completed", stats.jobs_completed) + ", " +
        number("jobs_failed", stats.jobs_failed) + ", " +
        number("elements_reduced", stats.elements_reduced) + ", " +
        number("packets_sent", stats.packets_sent) + ", " +
        number("packets_received", stats.packets_received) + ", " +
        number("packets_retransmitted", stats.packets_retransmitted) + ", " +
        number("packets_discarded", stats.packets_discarded) + "}";
  }

  const std::shared_ptr<Library> library_;
  const Settings settings_;
  const int rank_;
  const int size_;
  const pid_t owner_;
  std::thread thread_;

  mutable std::mutex mutex_; // guards the four below
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool closing_ = false;
  std::string failure_;

  // Guards the context's end against whoever asks for its counters.
  mutable std::mutex contextMutex_;
  switchml_context* context_ = nullptr;
  switchml_stats lastStats_{};
};

std::shared_ptr<Session> currentSession() {
  const std::lock_guard<std::mutex> lock(current().mutex);
  return current().session;
}

void writeCurrentReport() {
  if (const auto session = currentSession()) {
    session->write(SwitchMLSession::report());
  }
}

// What callers hold: the report is written when it is closed, once.
class ReportingSession : public SwitchMLSession {
 public:
  explicit ReportingSession(std::shared_ptr<Session> session)
      : session_(std::move(session)) {}

  ~ReportingSession() override {
    close();
  }

  void enqueue(std::function<void()> job) override {
    session_->enqueue(std::move(job));
  }

  void allreduce(void* data, uint64_t numel, Dtype dtype) override {
    session_->allreduce(data, numel, dtype);
  }

  void countCopied() override {
    session_->countCopied();
  }

  void close() override {
    session_->close();
    if (!std::exchange(reported_, true)) {
      writeCurrentReport();
    }
  }

 private:
  const std::shared_ptr<Session> session_;
  bool reported_ = false;
};

} // namespace

bool SwitchMLSession::requested() {
  return switchml_detail::isRequested();
}

std::shared_ptr<SwitchMLSession> SwitchMLSession::open(
    Store& store,
    int rank,
    int size,
    std::chrono::milliseconds groupTimeout) {
  Agreement agreement(store, rank, size);
  Settings settings;
  std::shared_ptr<Library> library;
  agreement.settle("load", settings, [&] {
    if (size > kMaxWorkers) {
      throw std::runtime_error(
          "the group has " + std::to_string(size) +
          " ranks, a switch serves " + std::to_string(kMaxWorkers));
    }
    settings = Settings::read();
    library = Library::load(settings.library);
    auto facts = settings.common;
    facts.emplace_back("the transport of libswitchml", library->transport());
    return facts;
  });
  auto session = std::make_shared<Session>(library, settings, rank, size);
  agreement.settle("open", settings, [&] {
    session->connect(groupTimeout);
    return switchml_detail::Facts();
  });
  {
    const std::lock_guard<std::mutex> lock(current().mutex);
    current().session = session;
  }
  static const int atExit = std::atexit(&writeCurrentReport);
  (void)atExit;
  return std::make_shared<ReportingSession>(std::move(session));
}

void SwitchMLSession::countFallback(Fallback reason) {
  counters().fallbacks[static_cast<size_t>(reason)] += 1;
}

std::string SwitchMLSession::report() {
  const auto session = currentSession();
  std::string text = "{\n  " + number("schema", 1) + ",\n  " +
      quote("version") + ": " + quote(kVersion) + ",\n  " +
      quote("active") + ": " + (session ? "true" : "false") + ",\n  ";
  if (session) {
    text += session->describe() + ",\n  ";
  }
  text += quote("delegated") + ": {";
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    const uint64_t elements = counters().elements[i];
    text += (i != 0 ? ", " : "") + quote(kDtypes[i]) + ": {" +
        number("jobs", counters().jobs[i]) + ", " +
        number("elements", elements) + ", " +
        number("bytes", elements * kElementBytes) + "}";
  }
  text += "},\n  " + quote("fallbacks") + ": {";
  for (size_t i = 0; i < kFallbacks.size(); ++i) {
    text += (i != 0 ? ", " : "") +
        number(kFallbacks[i], counters().fallbacks[i]);
  }
  return text + "},\n  " + number("failed_jobs", counters().failed) +
      ",\n  " + number("copied_jobs", counters().copied) + "\n}\n";
}

} // namespace c10d
