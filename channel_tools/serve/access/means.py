# SPDX-License-Identifier: BSD-3-Clause
"""Failures of the system that say nothing about the file that was asked for: the request may come again."""

from __future__ import annotations

import errno

NO_MEANS_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EIO, errno.ESTALE})


class WithoutMeansError(Exception):
    """There is no descriptor or memory left for it, or the disk fails: that says nothing about the file."""


def raise_without_means(error: OSError) -> None:
    """Raise WithoutMeansError for an error that is one of the system and not of the file."""
    if error.errno in NO_MEANS_ERRNOS:
        raise WithoutMeansError(str(error)) from error
