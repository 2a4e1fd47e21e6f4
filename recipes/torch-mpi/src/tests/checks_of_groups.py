# SPDX-License-Identifier: BSD-3-Clause
"""Checks of groups, futures, time limits and ends."""

import os
import re
import signal
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from checks import carries, check, error_of, everybodys, mine, rank, size

SOON = timedelta(seconds=1)


@check
def groups_of_some_ranks() -> None:
    pair = dist.new_group([0, size() - 1])
    odd = [dist.new_group([one]) for one in range(size())][rank()]
    if rank() in {0, size() - 1}:
        tensor = torch.full((3,), float(rank()))
        dist.all_reduce(tensor, group=pair)
        assert tensor.eq(size() - 1).all()
        dist.broadcast(tensor, src=size() - 1, group=pair)
    alone = mine()
    dist.all_reduce(alone, group=odd)
    assert torch.equal(alone, mine())
    everybody = dist.new_group()
    dist.all_reduce(alone, group=everybody)
    assert torch.equal(alone, torch.stack(everybodys()).sum(0))
    for group in (pair, odd, everybody):
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)


@check
def a_group_knows_pytorchs_rank_of_each_process() -> None:
    """Whom MPI has under another number is refused: see check_rank."""
    from torch_mpi import plugin

    asked: list[tuple[int | None, int]] = []
    with patch.object(plugin, "check_rank", lambda wanted, found: asked.append((wanted, found))):
        dist.destroy_process_group(dist.new_group(list(reversed(range(size())))))
    assert asked == [(rank(), rank())]


@check
def groups_of_gloo_beside_the_default_group() -> None:
    """As checkpointers make one. MPI has no store, so the group gets one; ranks outside of it do not wait."""
    first = [0, size() - 1]
    for backend in ("gloo", "cpu:gloo"):
        for ranks in (None, first, list(reversed(range(size())))):
            group = dist.new_group(ranks, backend=backend, timeout=timedelta(seconds=60))
            if group is dist.GroupMember.NON_GROUP_MEMBER:
                continue
            members = ranks or list(range(size()))
            tensor = torch.full((3,), float(rank()))
            dist.all_reduce(tensor, group=group)
            assert tensor.eq(sum(members)).all(), (backend, ranks)
            everybody: list[object] = [None] * len(members)
            dist.all_gather_object(everybody, {"rank": rank()}, group=group)
            assert everybody == [{"rank": one} for one in sorted(members)], (backend, ranks)
            if backend == "gloo":  # PyTorch goes by the name
                dist.monitored_barrier(group=group)
            dist.destroy_process_group(group)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.eq(size()).all()


@check
def a_barrier_does_not_wait_for_messages() -> None:
    """Rank 1 sends when it has heard of rank 0 after the barrier."""
    received = torch.zeros(1)
    if rank() == 0:
        work = dist.irecv(received, src=1, tag=1)
        dist.barrier()
        dist.send(torch.ones(1), dst=1, tag=2)
        work.wait()
        assert received.eq(1).all()
        return
    dist.barrier()
    if rank() == 1:
        dist.recv(received, src=0, tag=2)
        dist.send(received, dst=0, tag=1)


@check
def ranks_that_differ_are_an_error_of_all_where_pytorch_compares_them() -> None:
    """Under TORCH_DISTRIBUTED_DEBUG=DETAIL; without it they get values that nobody sent."""
    odd = torch.ones(4 + rank())
    before = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        said = f"do not make the same call: this one makes all_reduce of {4 + rank()} elements"
        assert said in error_of(lambda: dist.all_reduce(odd))
        assert odd.eq(1).all()
        wrong_type = torch.ones(4, dtype=torch.int32 if rank() else torch.float32)
        assert "do not make the same call" in error_of(lambda: dist.broadcast(wrong_type, src=0))
        other_call = (lambda: dist.all_reduce(mine())) if rank() else dist.barrier
        assert "do not make the same call" in error_of(other_call)
        with carries("all_reduce"):
            tensor = mine()
            dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.stack(everybodys()).sum(0))
        uneven = [torch.zeros(1 + one) for one in range(size())]
        dist.all_gather(uneven, torch.full((1 + rank(),), float(rank())))
        assert all(part.eq(one).all() for one, part in enumerate(uneven))
    finally:
        dist.set_debug_level(before)


@check
def many_groups_one_after_another() -> None:
    for _ in range(40):
        group = dist.new_group()
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(size()).all()
        dist.destroy_process_group(group)


@check
def more_groups_than_mpi_takes_are_one_error() -> None:
    """MPICH's limit, in groups of this rank alone, which takes no other; the places of what was destroyed are free."""
    import torch_mpi
    from torch_mpi import _C

    if "MPICH" not in torch_mpi.stats()["library"]["version"]:
        return
    groups: list[_C.MpiBackend] = []
    said = error_of(lambda: groups.extend(_C.MpiBackend.create([rank()], SOON) for _ in range(2049)))
    assert re.search(
        "MPI takes no further group: this process has 20[0-9][0-9] over MPI, and MPICH knows 2048", said
    ), said
    assert "destroy groups that are not used any more" in said
    groups.clear()
    many_groups_one_after_another()


@check
def a_device_mesh() -> None:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (1, size()), mesh_dim_names=("outer", "inner"))
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=mesh.get_group("inner"))
    assert tensor.eq(size()).all()


@check
def futures() -> None:
    future = dist.all_reduce(mine(), async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2).wait()
    assert torch.equal(doubled, 2 * torch.stack(everybodys()).sum(0))

    def fail(_: object) -> None:
        raise ValueError("the user's callback")

    assert "the user's callback" in error_of(dist.all_reduce(mine(), async_op=True).get_future().then(fail).wait)


@check
def callbacks_that_wait_for_later_collectives() -> None:
    def again(done: torch.futures.Future[list[torch.Tensor]], left: int) -> torch.Tensor:
        if left == 0:
            return done.value()[0]
        future = dist.all_reduce(done.value()[0], op=dist.ReduceOp.AVG, async_op=True).get_future()
        result: torch.Tensor = future.then(lambda inner: again(inner, left - 1)).wait()
        return result

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert future.then(lambda done: again(done, 20)).wait().eq(size()).all()


@check
def threads_that_reduce_side_by_side() -> None:
    groups = [dist.new_group() for _ in range(3)]
    wrong: list[Any] = []

    def reduce(group: dist.ProcessGroup) -> None:
        for numel in (1, 100, 50_000):
            tensor = mine(numel)
            dist.all_reduce(tensor, group=group)
            if not torch.equal(tensor, torch.stack(everybodys(numel)).sum(0)):
                wrong.append(numel)

    threads = [threading.Thread(target=reduce, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for group in groups:
        dist.destroy_process_group(group)


@check
def waiting_takes_no_whole_core() -> None:
    """Rank 0 waits for half a second for the others, by itself or by the thread that looks after works."""
    for works in (0, 1, 8):
        dist.barrier()
        if rank() != 0:
            time.sleep(0.5)
        before = time.process_time()
        under_way = [dist.all_reduce(mine(), async_op=True) for _ in range(works)]
        if rank() == 0 and works:
            time.sleep(0.5)
        for work in under_way:
            work.wait()
        dist.barrier()
        if rank() == 0:
            took = time.process_time() - before
            assert took < 0.15, f"{took} s of processor time with {works} works under way"


@check
def nobodys_thread_runs_while_nothing_is_under_way() -> None:
    dist.all_reduce(mine(), async_op=True).wait()
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.05


@check
def a_signal_ends_a_wait() -> None:
    group = dist.new_group()
    if rank() == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell's background ignores it
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        try:
            dist.all_reduce(torch.ones(3), group=group)
        except KeyboardInterrupt:
            assert time.monotonic() - started < 5
        else:
            raise AssertionError("not interrupted")
    dist.barrier()
    if rank() != 0:
        dist.all_reduce(torch.ones(3), group=group)  # the interrupted one goes on, and is whole


@check
def children_by_fork_leave_mpi_alone_and_end_well() -> None:
    """MPI's memory is the parent's too, whose data they would spoil."""
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    unfinished = [dist.all_reduce(torch.ones(3), async_op=True)] if rank() == 0 else []
    child = os.fork()
    if child == 0:
        work.wait()
        if any("a copy by fork()" not in error_of(one.wait) for one in unfinished):
            os._exit(2)
        for call in (lambda: dist.all_reduce(torch.ones(3)), dist.new_group, dist.destroy_process_group):
            with suppress(RuntimeError):
                call()
                os._exit(call is not dist.destroy_process_group)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for one in unfinished or [dist.all_reduce(torch.ones(3), async_op=True)]:
        one.wait()


@check
def the_groups_time_limit() -> None:
    """It fails the group on the rank that waited, and no other group."""
    group = dist.new_group(timeout=SOON)
    beside = dist.new_group(timeout=SOON)
    if rank() == 0:
        said = error_of(lambda: dist.all_reduce(torch.ones(3), group=group))
        assert f"MPI all_reduce of 3 elements on rank 0 of {size()} did not complete within 1 s" in said, said
        assert "the process group failed before: " in error_of(lambda: dist.barrier(group=group))
        unattended = dist.all_reduce(torch.ones(3), group=beside, async_op=True)
        assert "did not complete within 1 s" in error_of(unattended.get_future().wait)
        assert "did not complete within 1 s" in error_of(unattended.wait)
        assert not unattended.is_success()
    dist.barrier()


@check
def aborting_fails_what_is_under_way() -> None:
    group = dist.new_group()
    if rank() == 0:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        backend = group._get_backend(torch.device("cpu"))
        threading.Timer(0.2, backend.abort).start()
        assert "it was aborted" in error_of(work.wait)
    dist.barrier()
