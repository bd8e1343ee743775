"""The options of jobs in the form that the server's processes get."""

from __future__ import annotations

from typing import NamedTuple


class JobsOptions(NamedTuple):
    jobs: bool = False
    jobs_keep_secs: int = 7 * 24 * 3600
    jobs_max_bytes: int = 10 << 30
    #: Names, addresses, networks.
    webhook_allow: tuple[str, ...] = ()
    webhook_secret_file: str = ""
