// SPDX-License-Identifier: BSD-3-Clause
//
// Whether the MPI of this process takes pointers to CUDA memory: asked of the
// library that is loaded, when it is loaded. The header that a program was
// compiled with cannot tell: MPI libraries of one ABI replace each other at run
// time (a site's Cray MPICH stands in for the MPICH built against), and on Cray
// MPICH the user's environment decides.
//
// A wrong yes hands a device pointer to code that reads it on the host, so
// every doubt is a no, with its reason.
//
// Header-only, so that no build list has to name it.
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <mpi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

namespace c10d {

struct CudaAwareness {
  bool aware;
  std::string reason; // why not, or what said so
};

namespace mpi_cuda {

// As in the mpi.h of MPICH and Cray MPICH; the function is looked up at run
// time, so the header compiled with need not know it.
#if defined(MPIX_GPU_SUPPORT_CUDA)
constexpr int kGpuSupportCuda = MPIX_GPU_SUPPORT_CUDA;
#else
constexpr int kGpuSupportCuda = 0;
#endif

using QueryCuda = int (*)();
using QueryGpu = int (*)(int, int*);

// All that the answer depends on.
struct Facts {
  bool initialized = false;
  std::string library; // what MPI_Get_library_version says
  QueryGpu queryGpu = nullptr; // MPIX_GPU_query_support: MPICH, Cray MPICH
  QueryCuda queryCuda = nullptr; // MPIX_Query_cuda_support: Open MPI, MPICH
  bool gtlCuda = false; // Cray MPICH's GPU transport layer for CUDA is loaded
  std::string crayGpuSupport; // MPICH_GPU_SUPPORT_ENABLED, "" when not set
};

enum class Answer { kYes, kNo, kNotAsked };

// What the library's own query says. The newer function comes first: it is the
// one that minds MPICH's run-time switch in all releases that have both.
inline Answer ask(const Facts& facts) {
  if (facts.queryGpu != nullptr) {
    int supported = 0;
    const int status = facts.queryGpu(kGpuSupportCuda, &supported);
    return status == MPI_SUCCESS && supported != 0 ? Answer::kYes : Answer::kNo;
  }
  if (facts.queryCuda != nullptr) {
    return facts.queryCuda() == 1 ? Answer::kYes : Answer::kNo;
  }
  return Answer::kNotAsked;
}

inline bool contains(std::string text, const std::string& lowered) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return text.find(lowered) != std::string::npos;
}

// MPI_Init reads the variable as a number. Anything else is no yes.
inline bool isSwitchedOn(const std::string& value) {
  char* end = nullptr;
  const long number = std::strtol(value.c_str(), &end, 10);
  return !value.empty() && end != nullptr && *end == '\0' && number > 0;
}

// Cray MPICH moves CUDA buffers through its GPU transport layer (GTL), a
// library of its own, and only where the environment asks for it.
inline CudaAwareness judgeCray(const Facts& facts) {
  if (!isSwitchedOn(facts.crayGpuSupport)) {
    return {
        false,
        "Cray MPICH moves GPU buffers only with MPICH_GPU_SUPPORT_ENABLED=1 "
        "in the environment of every rank" +
            (facts.crayGpuSupport.empty()
                 ? std::string(", which is not set")
                 : ", which is set to '" + facts.crayGpuSupport + "'")};
  }
  if (!facts.gtlCuda) {
    return {
        false,
        "MPICH_GPU_SUPPORT_ENABLED is set, but Cray MPICH's GPU transport "
        "layer libmpi_gtl_cuda.so is not loaded (LD_PRELOAD it, or link it)"};
  }
  if (ask(facts) == Answer::kNo) {
    return {false, "Cray MPICH says that it has no CUDA support"};
  }
  return {true, "Cray MPICH with its GPU transport layer for CUDA"};
}

inline CudaAwareness judgeByQuery(const Facts& facts) {
  const std::string name = facts.library.substr(0, facts.library.find('\n'));
  switch (ask(facts)) {
    case Answer::kYes:
      return {true, "said by the MPI library: " + name};
    case Answer::kNo:
      return {
          false,
          "the MPI library says that it has no CUDA support, or that it is "
          "switched off: " +
              name};
    default:
      return {
          false,
          "the MPI library has no function that tells (MPIX_GPU_query_support, "
          "MPIX_Query_cuda_support): " +
              name};
  }
}

inline CudaAwareness judge(const Facts& facts) {
  if (!facts.initialized) {
    return {false, "MPI is not initialized, so it cannot be asked yet"};
  }
  return contains(facts.library, "cray mpich") ? judgeCray(facts)
                                               : judgeByQuery(facts);
}

// A function of the MPI library in use: of the object that gives this process
// MPI_Init_thread and what that links to, else of everything in sight.
template <typename Function>
Function find(const char* name) {
  void* symbol = nullptr;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) != 0 &&
      info.dli_fname != nullptr) {
    void* const handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr) {
      symbol = dlsym(handle, name);
      dlclose(handle);
    }
  }
  if (symbol == nullptr) {
    symbol = dlsym(RTLD_DEFAULT, name);
  }
  return reinterpret_cast<Function>(symbol);
}

inline bool isLoaded(const std::string& namePart) {
  struct Search {
    const std::string& part;
    bool found;
  } search{namePart, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t /* size */, void* data) {
        auto* const wanted = static_cast<Search*>(data);
        const std::string path = info->dlpi_name;
        const std::string file = path.substr(path.find_last_of('/') + 1);
        wanted->found = file.rfind(wanted->part, 0) == 0;
        return wanted->found ? 1 : 0;
      },
      &search);
  return search.found;
}

// What Cray MPICH has to find in the process before MPI_Init where the
// environment switches GPU buffers on; without it MPI_Init ends the process. A
// program linked by Cray's compilers has it; this one gets it from where the
// environment's activation found it. Returns what went wrong, if anything.
inline std::string loadTransportLayer() {
  const char* const enabled = std::getenv("MPICH_GPU_SUPPORT_ENABLED");
  const char* const path = std::getenv("CHANNEL_CRAY_MPICH_GTL");
  if (enabled == nullptr || !isSwitchedOn(enabled) || path == nullptr ||
      *path == '\0' || isLoaded("libmpi_gtl_")) {
    return "";
  }
  if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) != nullptr) {
    return "";
  }
  const char* const reason = dlerror();
  return std::string("Cray MPICH's GPU transport layer cannot be loaded: ") +
      (reason != nullptr ? reason : path);
}

inline bool isInitialized() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

inline Facts inspect() {
  Facts facts;
  facts.initialized = isInitialized();
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  if (MPI_Get_library_version(&text[0], &length) == MPI_SUCCESS) {
    facts.library = text.c_str();
  }
  facts.queryGpu = find<QueryGpu>("MPIX_GPU_query_support");
  facts.queryCuda = find<QueryCuda>("MPIX_Query_cuda_support");
  facts.gtlCuda = isLoaded("libmpi_gtl_cuda.so");
  const char* const enabled = std::getenv("MPICH_GPU_SUPPORT_ENABLED");
  facts.crayGpuSupport = enabled != nullptr ? enabled : "";
  return facts;
}

} // namespace mpi_cuda

// Asked once MPI is initialized, and then remembered: no MPI changes its mind.
inline CudaAwareness cudaAwareness() {
  if (!mpi_cuda::isInitialized()) {
    return mpi_cuda::judge(mpi_cuda::Facts());
  }
  static const CudaAwareness answer = mpi_cuda::judge(mpi_cuda::inspect());
  return answer;
}

} // namespace c10d
