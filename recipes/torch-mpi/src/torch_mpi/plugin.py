# SPDX-License-Identifier: BSD-3-Clause
"""The plugin's one object per process: it starts MPI when the first group asks for it, and ends it at exit."""

import atexit
import logging
import os
import re
import sys
from datetime import timedelta
from importlib import metadata
from typing import TYPE_CHECKING

from torch_mpi import pytorch
from torch_mpi.beginning import watched_beginning
from torch_mpi.errors import MPIError
from torch_mpi.launch import check_launch, check_rank
from torch_mpi.pytorch import GroupRequest
from torch_mpi.settings import read_settings

if TYPE_CHECKING:
    from torch_mpi import _C

logger = logging.getLogger(__name__)


class Plugin:
    """Made by :func:`torch_mpi.autoload`."""

    def __init__(self) -> None:
        self.library: _C.Library | None = None
        """MPI, once it is started."""
        self._owner = 0

    def install(self) -> bool:
        """Offer the backend to PyTorch; False where PyTorch has its own. See :func:`pytorch.offer_backend`."""
        return pytorch.offer_backend(self.create)

    def create(self, request: GroupRequest) -> "_C.MpiBackend":
        """The backend of the group; MPIError where MPI cannot serve."""
        if self.library is None:
            self.library = self._start(request.timeout)
        from torch_mpi import _C

        check_rank(request.rank, self.library.rank)
        return _C.MpiBackend.create(list(request.ranks), request.timeout)

    def _start(self, limit: timedelta) -> "_C.Library":
        with watched_beginning(os.environ, limit):
            settings = read_settings(os.environ)
            check_pytorch()
            library = _join()
        from torch_mpi import _C

        atexit.register(self._end)
        self._owner = os.getpid()
        if not library.serves_threads:
            raise MPIError(
                f"MPI ({library.version}) gives {library.thread_level}, and the backend mpi needs "
                "MPI_THREAD_SERIALIZED at least: it was started without threads, by other code in this process or in "
                "a build that has none"
            )
        if library.started_here:
            check_launch(os.environ, size=library.size, library=library.version)
        _C.set_device_policy(getattr(_C.DevicePolicy, settings.gpu.upper()))
        logger.info("MPI is %s at %s, %s", library.version, library.path, library.thread_level)
        return library

    def _end(self) -> None:
        """Wait for what is under way; where an error ended this rank, end the others at once, who would wait for it.

        Other exit codes than 0 (`sys.exit`) end the others when the interpreter has ended, which alone knows them.
        """
        if os.getpid() != self._owner:
            return
        from torch_mpi import _C

        if getattr(sys, "last_value", None) is not None:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None and not stream.closed:
                    stream.flush()
            _C.abort(1)
        else:
            _C.finish()


def _join() -> "_C.Library":
    """MPI, started; MPIError where it cannot be."""
    try:
        from torch_mpi import _C
    except ImportError as err:
        raise MPIError(
            f"the backend mpi cannot be loaded: {err}; the MPI that comes first in the loader's path "
            "(LD_LIBRARY_PATH) has to be one that this build is for: see torch-mpi's build string"
        ) from err
    try:
        return _C.start()
    except RuntimeError as err:
        raise MPIError(f"MPI cannot be started: {err}") from err


def check_pytorch() -> None:
    """Raise MPIError for a PyTorch of another minor version than the one that this build is for."""
    import torch

    required = " ".join(metadata.requires("torch-mpi") or ())
    built_for = re.search(r"\btorch *== *([0-9]+\.[0-9]+)\.\*", required)
    if built_for and torch.__version__.split(".")[:2] != built_for[1].split("."):
        raise MPIError(
            f"this build of torch-mpi is for PyTorch {built_for[1]}, found PyTorch {torch.__version__} in "
            f"{torch.__path__[0]}: install 'torch-mpi' and 'pytorch={built_for[1]}' from one channel"
        )
