"""Findings about the place of the access log."""

from __future__ import annotations

from collections.abc import Iterator

from zmqtriton.sdk.models import Chapter, FileSystem, Target


def chapters(target: Target) -> Iterator[Chapter]:
    """Yield the doctor's chapter."""
    yield Chapter(
        "the directory of the access log",
        FileSystem.judge_lines("the access log", target.path("access-log"), "--access-log"),
        reads_files=True,
        is_of_server=True,
    )
