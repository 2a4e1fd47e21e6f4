# SPDX-License-Identifier: BSD-3-Clause
"""HTTP as a client: one set of rules for everything that is fetched or sent."""

from channel_tools.system.http.client import (
    TEMPORARY_STATUSES,
    Credentials,
    HttpClient,
    MissingError,
    Response,
    basic_authorization,
    netrc_authorization,
    proxy_of,
)
from channel_tools.system.http.download import Cancelled, Download, download
from channel_tools.system.http.pace import RateLimit, Retry, Timeouts, TransientError, retry_after_s

__all__ = [
    "TEMPORARY_STATUSES",
    "Cancelled",
    "Credentials",
    "Download",
    "HttpClient",
    "MissingError",
    "RateLimit",
    "Response",
    "Retry",
    "Timeouts",
    "TransientError",
    "basic_authorization",
    "download",
    "netrc_authorization",
    "proxy_of",
    "retry_after_s",
]
