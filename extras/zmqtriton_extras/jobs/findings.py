"""Findings about the place of jobs on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

from zmqtriton.sdk.models import Chapter, FileSystem, Finding, Target, state_root


def chapters(target: Target) -> Iterator[Chapter]:
    """Yield the doctor's chapter."""
    name, findings = "the directory of the jobs", judge_jobs(target)
    yield Chapter(name, findings, reads_files=True, is_of_server=True)


def judge_jobs(target: Target) -> Iterator[Finding]:
    """Judge the place of jobs, which a server that runs has made."""
    options, is_running = target.options, target.server is not None
    if not options.get("jobs"):
        return
    named = options.get("state-directory", "")
    folder = os.path.join(named or state_root(), "jobs")
    if is_running and not os.path.isabs(named) and not os.path.isdir(folder):
        return  # it is where the variables and the working directory of the server say
    place = FileSystem.of(folder)
    if is_running and not os.path.isfile(os.path.join(folder, "jobs.sqlite")):
        pids = [pid for pid, name in target.processes.items() if name == "jobs"]
        yield Finding.error(
            f"the directory of the jobs is gone, or its files are: {folder}",
            "Jobs and batches that were there are lost with it, and new ones cannot be kept. "
            "The process of jobs makes it again when it starts, which it does after its end.",
            *(f"kill {pid}" for pid in pids),
        )
    elif not place.is_writable:
        yield Finding.error(
            f"jobs cannot be kept: this user may not write to {place.folder}",
            "Correct the rights, or name another place with --state-directory.",
            f"ls -ld {place.folder}",
        )
    else:
        effect = "New jobs are refused with 507 when it is full."
        yield from place.full(folder, "jobs and batches", effect)
