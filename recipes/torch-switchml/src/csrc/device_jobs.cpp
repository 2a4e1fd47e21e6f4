// SPDX-License-Identifier: BSD-3-Clause
//
// How a session reduces tensors of a device: one thread copies them to the
// host, a chunk at a time, and hands each chunk to the library; what came back
// is copied to the device by the pool's threads meanwhile.
#include "job.h"
#include "session.h"

#include <algorithm>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>

namespace torch_switchml {

namespace {

std::string message_of(const std::exception_ptr &error) {
    try {
        std::rethrow_exception(error);
    } catch (const c10::Error &known) {
        return known.what_without_backtrace();
    } catch (const std::exception &known) {
        return known.what();
    } catch (...) {
        return "an unknown exception";
    }
}

}  // namespace

std::shared_ptr<DeviceLane> Session::lane_of(c10::Device device) {
    const std::lock_guard<std::mutex> lock(lanes_mutex_);
    std::shared_ptr<DeviceLane> &lane = (*lanes_)[device];
    if (!lane) {
        lane = std::make_shared<DeviceLane>(device);
    }
    return lane;
}

void Session::use_lane(Job &job, c10::Device device) {
    job.lane = lane_of(device);
    job.ready.emplace(job.lane->mark_current());
    for (const at::Tensor &tensor : job.tensors) {
        job.lane->hold(tensor);
    }
}

void Session::hand_to_feeder(std::unique_ptr<Job> job) {
    Job &entered = *job;
    std::unique_ptr<CompletionPool::Task> task = std::make_unique<Feeding>(std::move(job));
    enter(entered);
    add_busy(1);
    if (feeder_->post(task)) {
        return;
    }
    const std::string reason = entered.describe() + " failed: the system gives no thread to copy to the host";
    fail(reason);
    add_busy(-1);
    settle(entered.number);
    counters_->count_failed();
    TORCH_CHECK_WITH(DistBackendError, false, reason);
}

void Session::Feeding::run() noexcept {
    const std::shared_ptr<Session> session = job->session;
    session->feed(std::move(job));
    session->add_busy(-1);
}

// Those ahead of it never wait for this thread: they have passed it.
void Session::feed(std::unique_ptr<Job> job) noexcept {
    std::optional<std::string> broken;
    {
        std::unique_lock<std::mutex> lock(jobs_mutex_);
        Access &access = pending_.at(job->number);
        settled_.wait(lock, [&] { return failure_ || !has_to_wait(access, job->number); });
        if (!access.broken.empty()) {
            broken = "what it was to add up is not there: " + access.broken;
        } else if (has_to_wait(access, job->number)) {
            broken = *failure_;
        }
    }
    if (broken) {
        fail_copy(*job, backend_error(*broken));
        run_on_pool(std::move(job));
        return;
    }
    if (!job->lane) {
        feed_from_host(std::move(job));
        return;
    }
    try {
        send_parts(*job);
    } catch (...) {
        fail_copy(*job, std::current_exception());
    }
    Job *const shared = job.release();
    if (close_part(*shared)) {
        run_on_pool(std::unique_ptr<Transfer>(shared));
    }
}

// What came after a device's tensors, or had to wait for its memory.
void Session::feed_from_host(std::unique_ptr<Job> job) noexcept {
    bool sent = false;
    try {
        if (!job->wire.defined()) {
            job->prepare();
        }
        const std::lock_guard<std::mutex> lock(entry_mutex_);
        sent = send(*job);
    } catch (...) {
        fail_copy(*job, std::current_exception());
    }
    if (sent) {
        (void)job.release();
    } else {
        run_on_pool(std::move(job));
    }
}

// Full chunks, and a last part that is less than one: see kChunkNumel.
void Session::send_parts(Job &job) {
    job.prepare();
    const int64_t total = job.flat.numel();
    for (int64_t offset = 0; offset <= total; offset += DeviceLane::kChunkNumel) {
        if (const auto reason = failure()) {
            C10_THROW_ERROR(DistBackendError, *reason);
        }
        send_part(job, offset, std::min(DeviceLane::kChunkNumel, total - offset));
    }
}

void Session::send_part(Job &job, int64_t offset, int64_t numel) {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto part = std::make_unique<Part>(job, job.flat.narrow(0, offset, numel), job.lane->take_chunk());
    bool sent = false;
    try {
        part->wire = job.lane->copy_out(part->target, *part->chunk);
        const std::lock_guard<std::mutex> lock(entry_mutex_);
        job.open_parts.fetch_add(1);
        sent = send(*part);
    } catch (...) {
        job.lane->return_chunk(std::move(part->chunk));
        throw;
    }
    if (sent) {
        (void)part.release();
        return;
    }
    job.open_parts.fetch_sub(1);
    job.lane->return_chunk(std::move(part->chunk));
    std::rethrow_exception(part->error);
}

void Session::complete_part(Part &part) noexcept {
    Job *const whole = part.whole;
    if (part.error) {
        whole->add_error(part.error);
    } else {
        try {
            whole->lane->copy_back(part.wire, part.target, *part.chunk);
        } catch (...) {
            fail_copy(*whole, std::current_exception());
        }
    }
    whole->lane->return_chunk(std::move(part.chunk));
    if (close_part(*whole)) {
        const std::unique_ptr<Job> last(whole);
        complete(*last);
    }
}

// Whether it was the last, whose closer ends the job.
bool Session::close_part(Job &job) noexcept { return job.open_parts.fetch_sub(1) == 1; }

// The other ranks' sums would lack what this one cannot send: none may follow.
void Session::fail_copy(Job &job, std::exception_ptr error) noexcept {
    try {
        const std::string reason = job.describe() + " failed: " + failure().value_or(message_of(error));
        fail(reason);
        error = backend_error(reason);
    } catch (...) {
        error = std::current_exception();
        fail("out of memory");
    }
    job.add_error(error);
    abort();
}

// On the thread that ended the work, which is complete but for its streams.
void Session::settle_on_devices(const std::shared_ptr<const Memory> &memory, c10d::Work &work) noexcept {
    try {
        for (const c10::Device device : memory->devices()) {
            if (has_lane(device.type())) {
                const std::shared_ptr<DeviceLane> lane = lane_of(device);
                const c10::StreamGuard guard(lane->back());
                work.synchronize();
                lane->note_written(memory);
            }
        }
    } catch (const std::exception &error) {
        fail(std::string("the wrapped backend's work cannot be waited for: ") + error.what());
    }
}

}  // namespace torch_switchml
