"""Findings about the place of the access log."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.sdk.models import files
from zmqtriton.sdk.models import target as doctor_target


def chapters(target: doctor_target.Target) -> Iterator[doctor_target.Chapter]:
    """Yield the doctor's chapter."""
    yield doctor_target.Chapter(
        "the directory of the access log",
        files.judge_lines("the access log", target.path("access-log"), "--access-log"),
        reads_files=True,
        is_of_server=True,
    )
