// SPDX-License-Identifier: BSD-3-Clause
#include "host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace torch_switchml {

namespace {

constexpr const char *kNamePrefix = "torch-switchml-";

[[noreturn]] void throw_reason(const std::string &what, int error) {
    throw std::runtime_error(what + ": " + std::generic_category().message(error));
}

std::string random_digits() {
    std::array<uint8_t, 16> bytes{};
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        throw_reason("no random number", errno);
    }
    std::string digits;
    for (const uint8_t byte : bytes) {
        constexpr const char *kDigits = "0123456789abcdef";
        digits += kDigits[byte >> 4];
        digits += kDigits[byte & 15];
    }
    return digits;
}

// A descriptor that is closed unless it is released.
class Descriptor {
  public:
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor() {
        if (number_ >= 0) {
            ::close(number_);
        }
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    int get() const { return number_; }
    int release() { return std::exchange(number_, -1); }

  private:
    int number_;
};

struct Address {
    std::string path;  // of the descriptor, in /proc
    std::string name;  // of the memory
};

// PROCESS:DESCRIPTOR:DIGITS
Address parse_address(const std::string &text) {
    const std::size_t first = text.find(':');
    const std::size_t second = text.find(':', first + 1);
    const auto number_of = [&text](std::size_t begin, std::size_t end) {
        return std::stoi(text.substr(begin, end - begin));
    };
    try {
        if (first != std::string::npos && second != std::string::npos) {
            const std::string process = std::to_string(number_of(0, first));
            const std::string descriptor = std::to_string(number_of(first + 1, second));
            return {"/proc/" + process + "/fd/" + descriptor, kNamePrefix + text.substr(second + 1)};
        }
    } catch (const std::logic_error &) {  // of stoi
    }
    throw std::runtime_error("not the address of shared memory: " + text);
}

// By its name first: to open another kind of file could have effects.
void check_name(const Address &address) {
    std::array<char, 256> target{};
    const ssize_t length = readlink(address.path.c_str(), target.data(), target.size());
    if (length < 0) {
        throw_reason("cannot look at " + address.path, errno);
    }
    const std::string found(target.data(), static_cast<std::size_t>(length));
    if (found.rfind("/memfd:" + address.name, 0) != 0) {
        throw std::runtime_error(address.path + " is " + found + ", not " + address.name);
    }
}

}  // namespace

std::unique_ptr<HostMemory> HostMemory::create(std::size_t bytes) {
    const std::string digits = random_digits();
    Descriptor file(memfd_create((kNamePrefix + digits).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (file.get() < 0) {
        throw_reason("cannot make shared memory", errno);
    }
    // Reserved now: a page that is not to be had later would be a SIGBUS.
    const int refused = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
    if (refused != 0) {
        throw_reason("cannot reserve " + std::to_string(bytes) + " bytes of shared memory", refused);
    }
    if (fchmod(file.get(), S_IRUSR | S_IWUSR) != 0 ||
        fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        throw_reason("cannot protect shared memory", errno);
    }
    std::unique_ptr<HostMemory> memory(new HostMemory());
    memory->map(file.get(), bytes);
    memory->address_ = std::to_string(getpid()) + ":" + std::to_string(file.get()) + ":" + digits;
    memory->descriptor_ = file.release();
    return memory;
}

std::unique_ptr<HostMemory> HostMemory::attach(const std::string &address, std::size_t bytes) {
    const Address place = parse_address(address);
    check_name(place);
    const Descriptor file(::open(place.path.c_str(), O_RDWR | O_CLOEXEC));
    if (file.get() < 0) {
        throw_reason("cannot open " + place.path, errno);
    }
    struct stat found{};
    if (fstat(file.get(), &found) != 0 || static_cast<std::size_t>(found.st_size) != bytes) {
        throw std::runtime_error(place.path + " is not of " + std::to_string(bytes) + " bytes");
    }
    std::unique_ptr<HostMemory> memory(new HostMemory());
    memory->map(file.get(), bytes);
    memory->address_ = address;
    return memory;
}

void HostMemory::map(int descriptor, std::size_t bytes) {
    void *const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
    if (mapped == MAP_FAILED) {
        throw_reason("cannot map shared memory", errno);
    }
    data_ = mapped;
    bytes_ = bytes;
    owner_ = getpid();
    madvise(data_, bytes_, MADV_DONTFORK);  // children take no part, and must not keep it
}

void HostMemory::seal() {
    if (descriptor_ >= 0) {
        ::close(std::exchange(descriptor_, -1));
    }
}

HostMemory::~HostMemory() {
    seal();
    if (data_ != nullptr && owner_ == getpid()) {  // a child has other things there
        munmap(data_, bytes_);
    }
}

}  // namespace torch_switchml
