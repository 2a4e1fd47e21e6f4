// SPDX-License-Identifier: BSD-3-Clause
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/MPICudaAware.hpp>

namespace torch_mpi {

namespace {

// Whose MPI this process has: every call asks, and getpid() would be a system call each time.
enum class Owner { kNobody, kThisProcess, kEndingProcess, kParent };
std::atomic<Owner> owner{Owner::kNobody};
bool ends_here = false;  // this process started MPI

// How long the launcher may take to read what this process has printed.
constexpr std::chrono::seconds kReadingLimit{2};

void note_in_children() {
    const int code = pthread_atfork(nullptr, nullptr, [] {
        if (owner != Owner::kNobody) {
            owner = Owner::kParent;
        }
    });
    if (code != 0) {
        throw std::runtime_error("pthread_atfork: " + std::generic_category().message(code));
    }
}

// Until all that was written to the pipe has been read: MPI_Abort ends the launcher, which throws the rest away.
void wait_until_read(int file) {
    struct stat about{};
    if (fstat(file, &about) != 0 || !S_ISFIFO(about.st_mode)) {
        return;
    }
    const auto until = std::chrono::steady_clock::now() + kReadingLimit;
    int unread = 0;
    while (ioctl(file, FIONREAD, &unread) == 0 && unread > 0 && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

bool initialized_and_not_finalized() {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    return initialized != 0 && finalized == 0;
}

// No others that would wait; MPICH's MPI_Abort ends a process that plain python started with a backtrace of its own.
bool is_alone() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size == 1;
}

void abort_all(int status) {
    wait_until_read(STDOUT_FILENO);
    wait_until_read(STDERR_FILENO);
    MPI_Abort(MPI_COMM_WORLD, status);
}

// Called by exit() with the status that the process ends with (glibc's on_exit(3)), after the interpreter has ended:
// that alone knows how sys.exit() ends. MPI_Finalize would wait for ranks that wait for this one.
void end_with_status(int status, void * /*unused*/) {
    const bool mine = owner == Owner::kThisProcess || owner == Owner::kEndingProcess;
    if (!mine || !ends_here || !initialized_and_not_finalized()) {
        return;
    }
    if (status != 0 && is_alone()) {
        return;
    }
    if (status != 0) {
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        std::fprintf(stderr, "torch-mpi: rank %d has ended with exit code %d, so all ranks are ended\n", rank, status);
        std::fflush(stderr);
        abort_all(status);
    } else if (owner == Owner::kEndingProcess) {  // else another thread may be in MPI
        MPI_Finalize();
    }
}

std::string first_line_of_version() {
    std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    text = text.c_str();  // Open MPI counts the final NUL
    return text.substr(0, text.find('\n'));
}

std::string library_path() {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void *>(&MPI_Init_thread), &info) == 0 || info.dli_fname == nullptr) {
        return {};
    }
    return info.dli_fname;
}

void start_mpi(LibraryFacts &facts) {
    int initialized = 0;
    int finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized != 0) {
        throw std::runtime_error("MPI has been ended in this process, and cannot be started twice");
    }
    if (initialized != 0) {
        MPI_Query_thread(&facts.thread_level);
        return;
    }
    const std::string problem = c10d::mpi_cuda::loadTransportLayer();
    if (!problem.empty()) {
        throw std::runtime_error(problem);
    }
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &facts.thread_level);
    if (code != MPI_SUCCESS) {
        throw std::runtime_error("MPI_Init_thread: " + error_text(code));
    }
    // what only a test of requests finds wrong, MPICH puts down to one of these, which would end the process
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    facts.started_here = true;
}

LibraryFacts start_and_ask() {
    LibraryFacts facts;
    facts.version = first_line_of_version();
    facts.path = library_path();
    int minor = 0;
    MPI_Get_version(&facts.standard, &minor);
    facts.standard = 100 * facts.standard + 10 * minor;
    note_in_children();
    start_mpi(facts);
    ends_here = facts.started_here;
    if (ends_here && on_exit(&end_with_status, nullptr) != 0) {
        throw std::runtime_error("on_exit(3) has no memory");
    }
    owner = Owner::kThisProcess;
    MPI_Comm_rank(MPI_COMM_WORLD, &facts.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &facts.size);
    return facts;
}

}  // namespace

const LibraryFacts &start_library() {
    static const LibraryFacts facts = start_and_ask();
    return facts;
}

bool library_usable() {
    if (owner != Owner::kThisProcess) {
        return false;
    }
    int finalized = 0;
    MPI_Finalized(&finalized);
    return finalized == 0;
}

void require_library() {
    if (owner == Owner::kParent) {
        throw_backend_error(
            "MPI was started in another process, of which this one is a copy by fork(), and serves that one alone: "
            "start processes that use torch.distributed by \"spawn\" or by MPI's launcher");
    }
    if (!library_usable()) {
        throw_backend_error("MPI has been ended in this process");
    }
}

void finish_library() {
    if (library_usable()) {
        owner = Owner::kEndingProcess;
    }
}

void abort_library(int code) {
    if (library_usable() && ends_here && !is_alone()) {
        abort_all(code);
    }
}

std::string error_text(int code) {
    std::string text(MPI_MAX_ERROR_STRING, '\0');
    int length = 0;
    if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
        return "error " + std::to_string(code);
    }
    text.resize(static_cast<size_t>(length));
    return text;
}

void check(int code, const char *call) {
    if (code != MPI_SUCCESS) {
        throw_backend_error(std::string(call) + ": " + error_text(code));
    }
}

std::exception_ptr backend_error(const std::string &message) {
    return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, message));
}

void throw_backend_error(const std::string &message) { C10_THROW_ERROR(DistBackendError, message); }

void *find_symbol(const char *name) { return c10d::mpi_cuda::find<void *>(name); }

}  // namespace torch_mpi
