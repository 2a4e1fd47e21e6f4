// SPDX-License-Identifier: BSD-3-Clause
//
// The check as it lives in a process: in a library that links to MPI (as
// libtorch does) and that the program loads with RTLD_LOCAL (as Python does).
#include <torch/csrc/distributed/c10d/MPICudaAware.hpp>

#include <cstdio>

extern "C" void prepare() {
  const std::string problem = c10d::mpi_cuda::loadTransportLayer();
  std::printf("%s\n", problem.empty() ? "prepared" : problem.c_str());
}

extern "C" void report() {
  const c10d::CudaAwareness answer = c10d::cudaAwareness();
  std::printf("%s: %s\n", answer.aware ? "yes" : "no", answer.reason.c_str());
}
