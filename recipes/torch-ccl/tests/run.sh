#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Two ranks, each way of starting them and each transport.
set -euo pipefail

unset LD_LIBRARY_PATH I_MPI_ROOT CCL_ROOT CCL_MPI_LIBRARY_PATH CCL_OFI_LIBRARY_PATH
export FI_PROVIDER=tcp GLOO_SOCKET_IFNAME=lo CCL_KVS_IFACE=lo OMP_NUM_THREADS=1

for transport in mpi ofi; do
  folder=$(mktemp -d)
  CCL_ATL_TRANSPORT=${transport} mpiexec -n 2 python tests/allreduce.py "${folder}/store"
done
folder=$(mktemp -d)
CCL_ATL_TRANSPORT=ofi python -m torch.distributed.run --standalone --local-addr=127.0.0.1 --nproc-per-node=2 \
  tests/allreduce.py "${folder}/store"
