# SPDX-License-Identifier: BSD-3-Clause
"""A stranger's machine: pip's index has PyTorch's wheels with CUDA alone, and PyTorch's own may have one for the CPU.

The wheels are small, their names and requirements those of the real ones.
"""

from __future__ import annotations

import hashlib
import socket
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from channel_tools.foundation.pypi import Pip, PytorchChoice
from channel_tools.system.errors import FoundationError, UsageError
from channel_tools.system.files import sha256_of_file
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted
from tests.unit.foundation.archives import write_wheel

TORCH = "torch==2.13.0"
TAG = "cp311-cp311-manylinux_2_28_x86_64"
PIP = Pip(python="3.11", glibc="2.36", machine="x86_64")


class WheelIndex:
    """Package indexes in folders, with a page for each project; ``read`` are the names of the wheels that were."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = ScriptedServer(answer=self._answer)

    @property
    def pages(self) -> list[str]:
        return [asked.path for asked in self.server.asked if asked.path.endswith("/")]

    @property
    def read(self) -> list[str]:
        return [unquote(asked.path.rpartition("/")[2]) for asked in self.server.asked if asked.path.endswith(".whl")]

    def offer(self, index: str, name: str, version: str, *, tag: str = TAG, requires: tuple[str, ...] = ()) -> None:
        folder = self.root / index / name
        folder.mkdir(parents=True, exist_ok=True)
        write_wheel(folder, name, {f"{name.replace('-', '_')}.py": ""}, version=version, tag=tag, requires=requires)

    def address(self, index: str) -> str:
        return f"{self.server.origin}/{index}"

    def _answer(self, asked: Asked) -> Reply:
        path = self.root / unquote(asked.path).lstrip("/")
        if asked.path.endswith("/") and path.is_dir():
            return 200, {"Content-Type": "text/html"}, "".join(map(_link, sorted(path.iterdir()))).encode()
        if path.is_file():
            return 200, {}, path.read_bytes()
        if path.suffix == ".metadata" and (wheel := path.with_suffix("")).is_file():
            return 200, {}, _metadata(wheel)
        return 404, {}, b""


def _link(wheel: Path) -> str:
    # the ordinary index keeps its metadata in its wheels
    known = f'data-core-metadata="sha256={hashlib.sha256(_metadata(wheel)).hexdigest()}"' if "cpu" in wheel.name else ""
    return f'<a href="{quote(wheel.name)}#sha256={sha256_of_file(wheel)}" {known}>{wheel.name}</a>\n'


def _metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as opened:
        return opened.read(next(name for name in opened.namelist() if name.endswith("/METADATA")))


@pytest.fixture
def indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WheelIndex]:
    """``ordinary`` has PyTorch with CUDA; nothing of the host's settings of pip is used."""
    for variable in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    index = WheelIndex(tmp_path / "indexes")
    index.offer("ordinary", "torch", "2.13.0", requires=("nvidia-cuda-runtime==13.0.96", "numpy"))
    index.offer("ordinary", "torch", "2.12.0", requires=("nvidia-cuda-runtime==13.0.96", "numpy"))
    index.offer("ordinary", "nvidia-cuda-runtime", "13.0.96", tag="py3-none-manylinux_2_28_x86_64")
    index.offer("ordinary", "numpy", "2.3.0", tag=TAG)
    with scripted(index.server):
        yield index


def _pip(indexes: WheelIndex, choice: PytorchChoice) -> Pip:
    return replace(PIP, options=("--index-url", indexes.address("ordinary")), pytorch=choice)


def _own_index(indexes: WheelIndex) -> PytorchChoice:
    return PytorchChoice(index=indexes.address("whl/cpu"))


def _fetch(pip: Pip, requirement: str, folder: Path) -> set[str]:
    folder.mkdir()
    found = pip.resolve([requirement])
    result = pip.download(found, folder, poll=lambda: None, on_large=lambda _name, _size: None)
    assert result.returncode == 0, result.stderr
    assert {path.name for path in folder.iterdir()} == {wheel.file_name for wheel in found}
    assert all(sha256_of_file(folder / wheel.file_name) == wheel.sha256 for wheel in found)
    return {f"{wheel.name} {wheel.version}" for wheel in found}


def test_the_wheel_for_the_cpu_comes_from_pytorchs_own_index(indexes: WheelIndex, tmp_path: Path) -> None:
    indexes.offer("whl/cpu", "torch", "2.13.0+cpu", requires=("numpy",))
    indexes.offer("whl/cpu", "numpy", "9")  # it is asked for PyTorch alone
    pip = _pip(indexes, _own_index(indexes))
    assert _fetch(pip, TORCH, tmp_path / "wheels") == {"numpy 2.3.0", "torch 2.13.0+cpu"}
    # once: its metadata was enough to resolve it
    assert [name for name in indexes.read if name.startswith("torch")] == [f"torch-2.13.0+cpu-{TAG}.whl"]
    assert {page for page in indexes.pages if "cpu" in page} == {"/whl/cpu/torch/"}


@pytest.mark.slow
@pytest.mark.parametrize("local", ["2.13.0+cu130", None], ids=["beside-cuda", "alone"])
def test_what_pips_settings_find_comes_first(
    indexes: WheelIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: str | None
) -> None:
    indexes.offer("folder", "torch", "2.13.0+cpu", requires=("numpy",))
    if local is not None:
        indexes.offer("folder", "torch", local)
    indexes.offer("whl/cpu", "torch", "2.13.0+cpu", requires=("other",))
    monkeypatch.setenv("PIP_FIND_LINKS", str(indexes.root / "folder" / "torch"))
    pip = _pip(indexes, _own_index(indexes))
    assert _fetch(pip, TORCH, tmp_path / "wheels") == {"numpy 2.3.0", "torch 2.13.0+cpu"}
    assert not any("cpu" in page for page in indexes.pages)


@pytest.mark.slow
def test_each_combination_has_the_wheel_for_its_python(indexes: WheelIndex) -> None:
    indexes.offer("whl/cpu", "torch", "2.12.0+cpu", tag="cp313-cp313-manylinux_2_28_x86_64")
    indexes.offer("ordinary", "torch", "2.12.0", tag="cp313-cp313-manylinux_2_28_x86_64")
    (found,) = replace(_pip(indexes, _own_index(indexes)), python="3.13").resolve(["torch==2.12.0"])
    assert found.file_name == "torch-2.12.0+cpu-cp313-cp313-manylinux_2_28_x86_64.whl"


@pytest.mark.slow
def test_wheels_with_cuda_are_taken_where_they_are_asked_for(
    indexes: WheelIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexes.offer("folder", "torch", "2.13.0+cpu", requires=("numpy",))
    monkeypatch.setenv("PIP_FIND_LINKS", str(indexes.root / "folder" / "torch"))
    pip = _pip(indexes, PytorchChoice(cuda=True, index=indexes.address("whl/cpu")))
    wheels = {"numpy 2.3.0", "nvidia-cuda-runtime 13.0.96", "torch 2.13.0"}
    assert _fetch(pip, TORCH, tmp_path / "wheels") == wheels


def _switched_off(indexes: WheelIndex, monkeypatch: pytest.MonkeyPatch) -> Pip:
    del monkeypatch
    return _pip(indexes, PytorchChoice())


def _with_another_index(indexes: WheelIndex, monkeypatch: pytest.MonkeyPatch) -> Pip:
    indexes.offer("whl/cpu", "torch", "2.13.0+cpu")
    monkeypatch.setenv("PIP_INDEX_URL", indexes.address("ordinary"))
    return replace(PIP, pytorch=_own_index(indexes))


def _for_another_python(indexes: WheelIndex, monkeypatch: pytest.MonkeyPatch) -> Pip:
    del monkeypatch
    indexes.offer("whl/cpu", "torch", "2.13.0+cpu", tag="cp313-cp313-manylinux_2_28_x86_64")
    return _pip(indexes, _own_index(indexes))


def _without_its_page(indexes: WheelIndex, monkeypatch: pytest.MonkeyPatch) -> Pip:
    del monkeypatch
    return _pip(indexes, _own_index(indexes))


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (_switched_off, r"PyTorch's own index is not asked \(CHANNEL_TOOLS_PYTORCH_INDEX=no\)"),
        (_with_another_index, r"PyTorch's own index is not asked, because pip's settings have index-url"),
        (_for_another_python, r"PyTorch's own index http://\S+/whl/cpu/torch/ lists none that fits"),
        (_without_its_page, r"PyTorch's own index http://\S+/whl/cpu/torch/ lists none that fits"),
    ],
    ids=["switched-off", "other-index", "other-python", "no-page"],
)
def test_without_one_for_the_cpu_there_is_one_error_and_no_download(
    indexes: WheelIndex,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[WheelIndex, pytest.MonkeyPatch], Pip],
    problem: str,
) -> None:
    pip = prepare(indexes, monkeypatch)
    with pytest.raises(FoundationError, match=problem) as caught:
        pip.resolve(["numpy", TORCH])
    assert "of torch==2.13.0 for Python 3.11 pip finds 2.13.0, and none of these" in caught.value.message
    for way in ("CHANNEL_TOOLS_PYTORCH_INDEX=URL", "find-links", "--cuda", "--foundation conda-forge"):
        assert way in str(caught.value.hint)
    assert indexes.read == []


def test_an_index_that_does_not_answer_is_not_waited_for(indexes: WheelIndex) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/whl/cpu"
        with pytest.raises(
            FoundationError, match=r"/whl/cpu/torch/ (did not answer within 0\.2 s|lists none that fits)"
        ):
            _pip(indexes, PytorchChoice(index=address, answer_s=0.2)).resolve([TORCH])
    assert indexes.read == []


@pytest.mark.parametrize("address", ["yes", "ftp://host/cpu", "https://me:secret@host/cpu", "https:///cpu", "/srv/cpu"])
def test_an_address_that_is_none_is_an_error(address: str) -> None:
    with pytest.raises(UsageError, match="expected https://HOST/whl/cpu") as caught:
        PytorchChoice(index=address)
    assert "secret" not in caught.value.message


@pytest.mark.slow
def test_an_index_without_pytorch_is_helped_by_pytorchs_own(indexes: WheelIndex, tmp_path: Path) -> None:
    indexes.offer("whl/cpu", "torch", "2.13.0+cpu", requires=("numpy",))
    indexes.offer("small", "numpy", "2.3.0")
    pip = replace(_pip(indexes, _own_index(indexes)), options=("--index-url", indexes.address("small")))
    assert _fetch(pip, TORCH, tmp_path / "wheels") == {"numpy 2.3.0", "torch 2.13.0+cpu"}
