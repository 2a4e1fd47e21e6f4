# SPDX-License-Identifier: BSD-3-Clause
"""How to run a script on an installed stack without channel_tools: what starts, which variables, and what proves it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from channel_tools.launch.plan import SWITCH_PORT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.system.yamlfile import YamlValue

_RANKS = 4


def how_to_run(validation: Mapping[str, YamlValue]) -> tuple[str, ...]:
    """The lines for a shell, by a stack's ``validate`` block: services, variables, the launcher, and the proof.

    HOST is a name to fill in. Empty for a stack without such a block, whose ranks carry no data, and for one whose
    services only ``channel_tools launch`` can start.
    """
    if not validation or validation.get("services"):
        return ()
    return tuple(_lines(validation))


def _lines(validation: Mapping[str, YamlValue]) -> Iterator[str]:
    method = validation["method"]
    if method == "switchml":
        yield f"switchml-switch --address HOST --controller-port {SWITCH_PORT} &   # or the controller of your switch"
        yield f"export SWITCHML_CONTROLLER=HOST:{SWITCH_PORT}   # on every host"
        yield _torchrun()
        yield _at_the_end("torch_switchml", 'stats()["delegated"]')
        return
    environment = validation.get("environment")
    if isinstance(environment, dict) and environment:
        pairs = (f"{name}={shlex.quote(str(value))}" for name, value in environment.items())
        yield f"export {' '.join(pairs)}   # as it was validated, on one host"
    if method == "nccl":
        yield "export NCCL_DEBUG=INFO"
        yield _torchrun()
        yield f'# NCCL prints "Using network {validation["network"]}"'
        return
    imports = "".join(f"import {name}; " for name in _texts(validation.get("imports")))
    yield f'# in train.py: {imports}torch.distributed.init_process_group("{validation["backend"]}")'
    yield f"mpiexec -n {_RANKS} python train.py" if validation.get("launcher") == "mpiexec" else _torchrun()
    module, _colon, function = str(validation.get("counter") or "").partition(":")
    if function:
        yield _at_the_end(module, f"{function}()")


def _torchrun() -> str:
    more = "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500"
    return f"torchrun --nproc-per-node {_RANKS} train.py   # on more hosts, on each: {more}"


def _at_the_end(module: str, call: str) -> str:
    return f"# at the end of train.py: import {module}; print({module}.{call})"


def _texts(value: YamlValue) -> Sequence[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
