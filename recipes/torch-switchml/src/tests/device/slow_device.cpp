// SPDX-License-Identifier: BSD-3-Clause
//
// A device for tests, PyTorch's PrivateUse1 under another name: its streams are
// threads that take their time before each copy, and memory that is given back
// is overwritten as soon as the streams that are known to use it have passed.
// Whoever forgets to synchronise gets wrong numbers. All operators but copies
// run on the CPU, one after the other on the current stream.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr std::size_t kStreams = 8;  // the default one, and those of the pool
// The default stream overtakes those that a plugin takes from the pool.
constexpr std::chrono::milliseconds kDelay(2);
constexpr std::chrono::milliseconds kDelayOfPool(10);
constexpr int kOverwritten = 0x7f;

std::atomic<int> g_copies_until_loss{-1};  // negative: never

// A point in a stream.
class Mark {
  public:
    void reach() {
        const std::lock_guard<std::mutex> lock(mutex_);
        reached_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return reached_; });
    }
    bool reached() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return reached_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool reached_ = false;
};

using MarkPtr = std::shared_ptr<Mark>;

// Runs what it is given in order, on a thread that ends with the process.
class Queue {
  public:
    void push(std::function<void()> task) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!started_) {
            std::thread([this] { run(); }).detach();
            started_ = true;
        }
        tasks_.push_back(std::move(task));
        changed_.notify_one();
    }
    MarkPtr mark() {
        auto mark = std::make_shared<Mark>();
        push([mark] { mark->reach(); });
        return mark;
    }

  private:
    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            changed_.wait(lock, [this] { return !tasks_.empty(); });
            const auto task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> tasks_;
    bool started_ = false;
};

Queue &queue(c10::StreamId id) {
    static auto *const queues = new std::array<Queue, kStreams>;  // outlive all users
    return queues->at(static_cast<std::size_t>(id));
}

// Overwrites what no stream uses any more, while all streams go on.
Queue &cleaner() {
    static auto *const queue = new Queue;
    return *queue;
}

thread_local c10::StreamId t_current = 0;

c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, 0), id); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return kType; }
    c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
    c10::Device getDevice() const override { return {kType, 0}; }
    void setDevice(c10::Device) const override {}
    void uncheckedSetDevice(c10::Device) const noexcept override {}
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }

    c10::Stream getStream(c10::Device) const override { return stream(t_current); }
    c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
    c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
        static std::atomic<unsigned> next{0};
        return stream(static_cast<c10::StreamId>(1 + next++ % (kStreams - 1)));
    }
    c10::Stream getNewStream(c10::Device device, int) const override { return getStreamFromGlobalPool(device, false); }
    c10::Stream exchangeStream(c10::Stream next) const override { return stream(std::exchange(t_current, next.id())); }
    bool queryStream(const c10::Stream &on) const override { return queue(on.id()).mark()->reached(); }
    void synchronizeStream(const c10::Stream &on) const override { queue(on.id()).mark()->wait(); }
    void synchronizeDevice(c10::DeviceIndex) const override {
        for (std::size_t id = 0; id < kStreams; ++id) {
            queue(static_cast<c10::StreamId>(id)).mark()->wait();
        }
    }

    void record(void **event, const c10::Stream &on, c10::DeviceIndex, c10::EventFlag) const override {
        if (*event == nullptr) {
            *event = new MarkPtr;
        }
        *static_cast<MarkPtr *>(*event) = queue(on.id()).mark();
    }
    void block(void *event, const c10::Stream &on) const override {
        queue(on.id()).push([mark = *static_cast<MarkPtr *>(event)] { mark->wait(); });
    }
    bool queryEvent(void *event) const override { return (*static_cast<MarkPtr *>(event))->reached(); }
    void synchronizeEvent(void *event) const override { (*static_cast<MarkPtr *>(event))->wait(); }
    void destroyEvent(void *event, c10::DeviceIndex) const noexcept override { delete static_cast<MarkPtr *>(event); }
    void recordDataPtrOnStream(const c10::DataPtr &data, const c10::Stream &on) const override;
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Memory as a caching allocator of a device gives it: what is freed serves the
// stream that it was made on again, at once, or where it was recorded on other
// streams as soon as those have passed. Overwritten in between.
struct Block {
    void *data;
    std::size_t size;
    c10::StreamId made_on;
    std::mutex mutex;
    std::set<c10::StreamId> used_on;
    MarkPtr overwritten;

    bool reusable() const { return !overwritten || overwritten->reached(); }

    static void free(void *context);
};

struct FreeBlocks {
    std::mutex mutex;
    std::vector<Block *> blocks;

    Block *take(std::size_t size, c10::StreamId stream) {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto fits = [&](Block *block) {
            return block->size == size && block->made_on == stream && block->reusable();
        };
        const auto found = std::find_if(blocks.begin(), blocks.end(), fits);
        if (found == blocks.end()) {
            return nullptr;
        }
        Block *const block = *found;
        blocks.erase(found);
        block->used_on.clear();
        block->overwritten.reset();
        return block;
    }
};

FreeBlocks &free_blocks() {
    static auto *const blocks = new FreeBlocks;
    return *blocks;
}

void Block::free(void *context) {
    auto *const block = static_cast<Block *>(context);
    const auto overwrite = [block] { std::memset(block->data, kOverwritten, block->size); };
    if (block->used_on.empty()) {
        queue(block->made_on).push(overwrite);
    } else {
        block->used_on.insert(block->made_on);
        std::vector<MarkPtr> users;
        for (const c10::StreamId id : block->used_on) {
            users.push_back(queue(id).mark());
        }
        cleaner().push([users, overwrite] {
            for (const MarkPtr &user : users) {
                user->wait();
            }
            overwrite();
        });
        block->overwritten = cleaner().mark();
    }
    FreeBlocks &free = free_blocks();
    const std::lock_guard<std::mutex> lock(free.mutex);
    free.blocks.push_back(block);
}

void Guard::recordDataPtrOnStream(const c10::DataPtr &data, const c10::Stream &on) const {
    if (auto *const block = data.cast_context<Block>(&Block::free)) {
        const std::lock_guard<std::mutex> lock(block->mutex);
        block->used_on.insert(on.id());
    }
}

struct DeviceMemory final : c10::Allocator {
    c10::DataPtr allocate(std::size_t size) override {
        const std::size_t bytes = std::max<std::size_t>(size, 1);
        Block *block = free_blocks().take(bytes, t_current);
        if (block == nullptr) {
            block = new Block{c10::alloc_cpu(bytes), bytes, t_current, {}, {}, {}};
        }
        return {block->data, block, &Block::free, c10::Device(kType, 0)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void *to, const void *from, std::size_t size) const override { std::memcpy(to, from, size); }
};

// Host memory that copies may use while the caller goes on. Given back, it is
// overwritten at once.
struct PinnedMemory final : c10::Allocator {
    struct Pinned {
        void *data;
        std::size_t size;
    };
    std::mutex mutex;
    std::set<const void *> pinned;
    std::size_t bytes = 0;
    std::size_t most_bytes = 0;

    c10::DataPtr allocate(std::size_t size) override;
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void *to, const void *from, std::size_t size) const override { std::memcpy(to, from, size); }
    bool holds(const void *data) {
        const std::lock_guard<std::mutex> lock(mutex);
        return pinned.count(data) != 0;
    }
};

DeviceMemory &device_memory() {
    static auto *const memory = new DeviceMemory;
    return *memory;
}

PinnedMemory &pinned_memory() {
    static auto *const memory = new PinnedMemory;
    return *memory;
}

c10::DataPtr PinnedMemory::allocate(std::size_t size) {
    auto *const part = new Pinned{c10::alloc_cpu(std::max<std::size_t>(size, 1)), size};
    {
        const std::lock_guard<std::mutex> lock(mutex);
        pinned.insert(part->data);
        bytes += size;
        most_bytes = std::max(most_bytes, bytes);
    }
    const auto give_back = [](void *context) {
        auto *const part = static_cast<Pinned *>(context);
        std::memset(part->data, kOverwritten, part->size);
        PinnedMemory &memory = pinned_memory();
        const std::lock_guard<std::mutex> lock(memory.mutex);
        memory.pinned.erase(part->data);
        memory.bytes -= part->size;
    };
    return {part->data, part, give_back, c10::kCPU};
}

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return 1; }
    c10::DeviceIndex getCurrentDevice() const override { return 0; }
    void setCurrentDevice(c10::DeviceIndex) const override {}
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
    bool isPinnedPtr(const void *data) const override { return pinned_memory().holds(data); }
    c10::Allocator *getPinnedMemoryAllocator() const override { return &pinned_memory(); }
};

// What a tensor's memory is to the CPU, without holding the tensor.
at::Tensor as_cpu(const at::Tensor &tensor) {
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                         at::TensorOptions().dtype(tensor.dtype()));
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool non_blocking) {
    TORCH_CHECK(g_copies_until_loss-- != 0, "the device is lost");
    if (from.numel() == 0) {
        return to;
    }
    const auto may_wait = [](const at::Tensor &tensor) {
        return !tensor.is_cpu() || pinned_memory().holds(tensor.storage().data());
    };
    const auto expanded = from.sizes() == to.sizes() ? from : from.expand(to.sizes());
    const auto delay = t_current == 0 ? kDelay : kDelayOfPool;
    queue(t_current).push([delay, source = as_cpu(expanded), target = as_cpu(to)] {
        std::this_thread::sleep_for(delay);
        const c10::InferenceMode plain;
        at::Tensor(target).copy_(source);
    });
    const bool meets_the_host = from.is_cpu() || to.is_cpu();
    if (meets_the_host && (!non_blocking || !may_wait(from) || !may_wait(to))) {
        queue(t_current).mark()->wait();
    }
    return to;
}

at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to) {
    if (from.sizes() != to.sizes()) {
        to.resize_(from.sizes());
    }
    return copy_from(from, to, false);
}

using Optional = std::optional<bool>;

at::Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device>, Optional, std::optional<c10::MemoryFormat> format) {
    constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
    return at::detail::empty_generic(size, &device_memory(), keys, dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device>, Optional) {
    constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
    return at::detail::empty_strided_generic(size, stride, &device_memory(), keys, dtype.value_or(at::kFloat));
}

void on_cpu(const c10::OperatorHandle &op, torch::jit::Stack *stack) { at::native::cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
    library.impl("empty.memory_format", &empty);
    library.impl("empty_strided", &empty_strided);
    library.impl("as_strided", &at::native::as_strided_tensorimpl);
    library.impl("view", &at::native::view);
    library.impl("_copy_from", &copy_from);
    library.impl("_copy_from_and_resize", &copy_from_and_resize);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void slow_device_register() {
    static Hooks hooks;
    c10::SetAllocator(kType, &device_memory());
    at::RegisterPrivateUse1HooksInterface(&hooks);
}

// The copy after so many more fails, and none after that one.
__attribute__((visibility("default"))) void slow_device_lose_after(int copies) { g_copies_until_loss = copies; }

// At a time, since the last call.
__attribute__((visibility("default"))) std::size_t slow_device_most_pinned_bytes() {
    PinnedMemory &memory = pinned_memory();
    const std::lock_guard<std::mutex> lock(memory.mutex);
    return std::exchange(memory.most_bytes, memory.bytes);
}
}
