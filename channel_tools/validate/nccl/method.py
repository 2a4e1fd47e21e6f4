# SPDX-License-Identifier: BSD-3-Clause
"""The method ``nccl``: whether NCCL uses the stack's network plugin and, on GPUs, whether it carried the allreduces.

NCCL falls back to its own sockets if it cannot use a plugin, and uses shared memory between GPUs of one host. So the
latter is disabled, and NCCL's log has to name the plugin for every connection. Without a GPU, only the two libraries
are compared and libfabric's providers listed, which finds everything that can be wrong before a job starts. So it is
with RCCL, AMD's NCCL: it is the site's, as the PyTorch is that uses it.

The lines of NCCL's log (``NCCL_DEBUG=INFO``) that are read are printed by src/init.cc, src/plugin/net/net_v*.cc and
src/transport/*.cc of NCCL 2.12 to 2.32:

    NET/Plugin: Loaded net plugin Libfabric (v11)
    Using network Libfabric
    Channel 00/0 : 0[0] -> 1[1] [send] via NET/Libfabric/0/GDRDMA
    Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, StringConstraints
from pydantic.dataclasses import dataclass as model_dataclass

from channel_tools.doctor.libraries import (
    FABRIC,
    NCCL,
    RCCL,
    PluginAbis,
    in_words,
    known_abis,
    load_libraries,
    rocm_hint,
    shared_net_abi,
)
from channel_tools.doctor.model import ExaminedStack
from channel_tools.doctor.profile import read_profile
from channel_tools.ranks.plan import StartSettings
from channel_tools.system.errors import ValidationError
from channel_tools.validate.cases import standard_cases
from channel_tools.validate.distributed.method import DistributedMethod, check_gpus, count_gpus
from channel_tools.validate.judging import problems_check
from channel_tools.validate.model import (
    Check,
    MethodResult,
    OmittedCase,
    ValidationMethod,
    read_method_options,
    torchrun_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.ranks.plan import Placement
    from channel_tools.system.yamlfile import YamlValue
    from channel_tools.validate.model import MethodContext

ROOT = Path("/")
_TUNERS = ("libnccl-tuner-ofi.so", "libnccl-ofi-tuner.so")
_LOG = "nccl-%p.log"


@model_dataclass(frozen=True, kw_only=True, slots=True, config=ConfigDict(extra="forbid"))
class NcclOptions:
    """Whose GPUs, the stack's plugin, NCCL's name for its network, and the specs for machines without a GPU.

    Each field is described in docs/how-to/validate.md.
    """

    plugin: Annotated[str, StringConstraints(pattern=r"^[^/\s]+\.so$")]
    network: str
    vendor: Literal["nvidia", "amd"] = "nvidia"
    without_gpu: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginFacts:
    """The ABIs of NCCL, or RCCL, and of the plugin, and libfabric's providers on this machine.

    ``absent`` is why there is no RCCL, which is the site's; then it has no ABIs.
    """

    plugin: PluginAbis
    nccl: PluginAbis
    providers: tuple[str, ...]
    library: str = "NCCL"
    absent: str = ""


class NcclMethod(ValidationMethod):
    """Compares plugin and NCCL; on GPUs also runs the allreduces of the method ``distributed`` and reads NCCL's log."""

    def __init__(self, *, root: Path = ROOT) -> None:
        """``root`` is the folder in which the machine's devices are searched."""
        self._root = root

    def specs(self, specs: Sequence[str], *, stack: str, options: Mapping[str, object]) -> tuple[str, ...]:
        """See ValidationMethod.specs."""
        without_gpu = read_nccl_options(stack, options).without_gpu
        return without_gpu if without_gpu and not count_gpus(self._root) else tuple(specs)

    def backend(self, options: Mapping[str, object]) -> str:  # noqa: ARG002
        """See ValidationMethod.backend."""
        return "nccl"

    def uses_gpus(self, options: Mapping[str, object]) -> bool:  # noqa: ARG002
        """See ValidationMethod.uses_gpus."""
        return True

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object], hosts: int = 1) -> None:
        """Raise ConfigError for invalid options, UsageError for more ranks than GPUs if there are any."""
        read_nccl_options(stack, options)
        check_gpus(stack, ranks // hosts, root=self._root)

    def start_settings(
        self,
        placement: Placement,
        *,
        stack: str,
        options: Mapping[str, object],
        switch: bool = False,  # noqa: ARG002
    ) -> StartSettings:
        """See ValidationMethod.start_settings: on several hosts, NCCL stops if it cannot use the network of this name.

        The ranks of one host need no network, and where it is Slingshot, the plugin cannot start there.
        """
        network = read_nccl_options(stack, options).network
        if len(placement.hosts) == 1:
            return StartSettings()
        profile = read_profile(placement.prefix)
        if profile is None or not profile.is_for(self._root):
            return StartSettings(variables={"NCCL_NET": network})
        return StartSettings(variables={"NCCL_NET": network, **profile.of_several_nodes(placement.prefix)})

    def how_to_run(self, options: Mapping[str, YamlValue]) -> Iterator[str]:
        """See ValidationMethod.how_to_run."""
        yield "export NCCL_DEBUG=INFO"
        yield torchrun_line()
        yield f'# NCCL prints "Using network {options["network"]}"'

    def run(self, context: MethodContext) -> MethodResult:
        """See ValidationMethod.run."""
        options = read_nccl_options(context.stack, context.options)
        facts = find_plugin_facts(options, context)
        checks, details = judge_plugin(facts), describe_plugin(facts)
        if options.vendor == "amd":
            result = without_allreduces(checks, details, "the PyTorch that does them is the site's, not this stack's")
            return replace(result, omitted=(*result.omitted, *_not_compared(facts)))
        if not count_gpus(self._root):
            return without_allreduces(checks, details, "this machine has no GPU")
        result = DistributedMethod().run(replace(context, options=allreduce_options(options, context.folder)))
        logs = [read_nccl_log(path.read_text(errors="replace")) for path in sorted(context.folder.glob("nccl-*.log"))]
        proof = judge_logs(logs, facts, ranks=context.ranks, network=options.network)
        return replace(result, checks=(*checks, *proof, *result.checks), details={**result.details, **details})


METHOD = NcclMethod()


def without_allreduces(checks: tuple[Check, ...], details: dict[str, str], reason: str) -> MethodResult:
    """The result where none can be done: ``checks`` alone, every allreduce omitted for that reason."""
    omitted = tuple(OmittedCase(name=case.name, reason=reason) for case in standard_cases())
    return MethodResult(
        checks=checks, cases=(), omitted=omitted, transports=(), bandwidth=(), baseline="none", details=details
    )


def read_nccl_options(stack: str, options: Mapping[str, object]) -> NcclOptions:
    """The options of a stack's ``validate`` block. Raises ConfigError as read_method_options does."""
    return read_method_options(NcclOptions, stack=stack, method="nccl", values=options)


def allreduce_options(options: NcclOptions, folder: Path) -> dict[str, object]:
    """The options for the method ``distributed``: each rank has its own log file in ``folder``."""
    return {
        "backend": "nccl",
        "device": "cuda",
        "event": "nccl:all_reduce",
        "libraries": [options.plugin],
        "not_offered": {"strided": "PyTorch's NCCL backend takes contiguous tensors only"},
        "environment": {
            "NCCL_NET": options.network,
            # GPUs of one host would bypass the network
            "NCCL_P2P_DISABLE": "1",
            "NCCL_SHM_DISABLE": "1",
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET",
            "NCCL_DEBUG_FILE": str(folder / _LOG),
        },
    }


def find_plugin_facts(options: NcclOptions, context: MethodContext) -> PluginFacts:
    """Load the plugin and libfabric, read NCCL's library. Raises ValidationError for one that does not load."""
    lib, is_own = context.prefix / "lib", options.vendor == "nvidia"
    for name, package in ((options.plugin, "nccl-ofi"), *(((NCCL, "nccl"),) if is_own else ())):
        if not (lib / name).is_file():
            raise ValidationError(f"{lib / name}: not in the environment", hint=f"install {package} into it")
    plugins = (options.plugin, *(name for name in _TUNERS if (lib / name).is_file()))
    subject = ExaminedStack(
        stack=context.stack,
        backend="nccl",
        settings={},
        prefix=context.prefix,
        variables=context.variables,
        installed={},
    )
    loaded = load_libraries(subject, [*(str(lib / name) for name in plugins), FABRIC])
    for library in loaded.values():
        if library.error:
            hint = "install nccl-ofi and libfabric again, or load the site's libfabric"
            if not is_own and not library.error.startswith(FABRIC):
                hint = rocm_hint(context.prefix)
            raise ValidationError(f"{Path(library.name).name}: cannot be loaded: {library.error}", hint=hint)
    site = None if is_own else load_libraries(subject, [RCCL])[RCCL]
    nccl = lib / NCCL if site is None else Path(site.file)
    return PluginFacts(
        plugin=PluginAbis(
            net=loaded[str(lib / options.plugin)].net_abis,
            tuner=tuple(sorted({abi for library in loaded.values() for abi in library.tuner_abis})),
        ),
        nccl=PluginAbis(net=(), tuner=()) if site is not None and site.error else known_abis(nccl),
        providers=loaded[FABRIC].providers,
        library="NCCL" if is_own else "RCCL",
        absent="" if site is None or not site.error else f"{site.error}; {rocm_hint(context.prefix)}",
    )


def _not_compared(facts: PluginFacts) -> Iterator[OmittedCase]:
    """What cannot be said without the site's RCCL."""
    if facts.absent:
        yield OmittedCase(name=f"{facts.library} and the plugin share a net ABI", reason=facts.absent)


def judge_plugin(facts: PluginFacts) -> tuple[Check, ...]:
    """The checks of the ABIs that NCCL can use. Raises ValidationError if it can use no net ABI of the plugin."""
    return (
        *(() if facts.absent else _shared_abis(facts)),
        Check(
            name="libfabric has a provider here",
            passed=bool(facts.providers),
            found=", ".join(facts.providers) or "none",
            expected="one or more",
        ),
    )


def _shared_abis(facts: PluginFacts) -> Iterator[Check]:
    shared = shared_net_abi(facts.plugin, facts.nccl)
    tuners = facts.plugin.tuner
    usable = set(tuners) & set(facts.nccl.tuner)
    name = f"{facts.library} and the plugin share a net ABI"
    yield Check(name=name, passed=True, found=f"v{shared}", expected="one or more")
    yield Check(
        name=f"{facts.library} can use the plugin's tuner, if it has one",
        passed=bool(usable) or not tuners,
        found=f"v{max(usable)}" if usable else in_words(tuners),
        expected=f"none, or one of {in_words(facts.nccl.tuner)}",
    )


def describe_plugin(facts: PluginFacts) -> dict[str, str]:
    """The facts for the report's details."""
    return {
        "libfabric providers": ", ".join(facts.providers),
        f"net ABIs of {facts.library}": in_words(facts.nccl.net),
        "net ABIs of the plugin": in_words(facts.plugin.net),
        f"tuner ABIs of {facts.library}": in_words(facts.nccl.tuner),
        "tuner ABIs of the plugin": in_words(facts.plugin.tuner),
    }


def judge_logs(logs: Sequence[NcclLog], facts: PluginFacts, *, ranks: int, network: str) -> tuple[Check, ...]:
    """Checks of NCCL's own logs: the network, the plugin's ABI, and every connection."""
    abi = shared_net_abi(facts.plugin, facts.nccl)
    connections = sum(log.connections.get(f"NET/{network}", 0) for log in logs)
    return (
        Check(
            name="every rank wrote a log of NCCL", passed=len(logs) == ranks, found=str(len(logs)), expected=str(ranks)
        ),
        problems_check(
            "NCCL's log names the plugin for every connection",
            list(_problems(logs, network, abi)),
            expected=f"{connections} connections via NET/{network}, ABI v{abi}",
        ),
    )


def _problems(logs: Sequence[NcclLog], network: str, abi: int) -> Iterator[str]:
    for number, log in enumerate(logs):
        if log.networks != (network,):
            yield f"log {number}: network {', '.join(log.networks) or 'unknown'}"
        if log.abi != abi:
            yield f"log {number}: ABI {'unknown' if log.abi is None else f'v{log.abi}'}"
        others = {way: count for way, count in log.connections.items() if way != f"NET/{network}"}
        yield from (f"log {number}: {count} connections via {way}" for way, count in sorted(others.items()))
        if not log.connections:
            yield f"log {number}: no connection"


_LOADED = re.compile(r"NCCL INFO NET/Plugin: Loaded net plugin (.+) \(v(\d+)\)\s*$", re.MULTILINE)
_NETWORK = re.compile(r"NCCL INFO Using network (.+?)\s*$", re.MULTILINE)
_CHANNEL = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? : \d+\[\w+\] -> \d+\[\w+\](?: \[(?:send|receive)\])? via (\S.*?)\s*$", re.MULTILINE
)
# the number of the device, then perhaps the rank whose proxy is used and what the device does
_DEVICE = re.compile(r"/\d+(\(\d+\))?(/.*)?$")


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclLog:
    """The content of one rank's log: the networks it used, the plugin's ABI, its connections by transport."""

    networks: tuple[str, ...]
    abi: int | None
    plugins: tuple[str, ...]
    """The networks that net plugins brought."""
    connections: Mapping[str, int]
    """The number of connections by transport: ``NET/Libfabric``, ``SHM``, ``P2P`` ..."""


def read_nccl_log(text: str) -> NcclLog:
    """Read a rank's log; a log without such lines has no network, ABI and connections."""
    loaded = _LOADED.findall(text)
    return NcclLog(
        networks=tuple(sorted(set(_NETWORK.findall(text)))),
        abi=int(loaded[-1][1]) if loaded else None,
        plugins=tuple(sorted({name for name, _abi in loaded})),
        connections=Counter(
            (_DEVICE.sub("", way) if way.startswith("NET/") else way.partition("/")[0])
            for way in _CHANNEL.findall(text)
        ),
    )
