"""Findings about the place of jobs on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

from zmqtriton.sdk.models import Finding, decisions, error, files
from zmqtriton.sdk.models import target as doctor_target


def chapters(target: doctor_target.Target) -> Iterator[doctor_target.Chapter]:
    """Yield the doctor's chapter."""
    name, findings = "the directory of the jobs", judge_jobs(target)
    yield doctor_target.Chapter(name, findings, reads_files=True, is_of_server=True)


def judge_jobs(target: doctor_target.Target) -> Iterator[Finding]:
    """Judge the directory of jobs, which a running server has made."""
    options, is_running = target.options, target.server is not None
    if not options.get("jobs"):
        return
    named = options.get("state-directory", "")
    folder = os.path.join(named or decisions.default_root(), "jobs")
    if is_running and not os.path.isabs(named) and not os.path.isdir(folder):
        return  # it is where the variables and the working directory of the server say
    place = files.read_place(folder)
    if is_running and not os.path.isfile(os.path.join(folder, "jobs.sqlite")):
        pids = [pid for pid, name in target.processes.items() if name == "jobs"]
        yield error(
            f"the directory of the jobs is gone, or its files are: {folder}",
            "Jobs and batches that were there are lost with it, and new ones cannot be kept. "
            "The process of jobs makes it again when it starts, which it does after its end.",
            *(f"kill {pid}" for pid in pids),
        )
    elif not place.is_writable:
        yield error(
            f"jobs cannot be kept: this user may not write to {place.folder}",
            "Correct the rights, or name another place with --state-directory.",
            f"ls -ld {place.folder}",
        )
    elif place.free_bytes < files.LEAST_FREE_BYTES:
        effect = "New jobs are refused with 507 when it is full."
        yield files.full_disk(folder, place, "jobs and batches", effect)
