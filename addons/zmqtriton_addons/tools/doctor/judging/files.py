"""Directories, disks, certificates and files with secrets."""

from __future__ import annotations

import time
from collections.abc import Iterator

from zmqtriton.findings import Finding, error, note, warning
from zmqtriton_addons.tools.doctor.facts import Certificate, Facts, Place

_GIB = 1 << 30
_DAY_S = 86400
#: Whoever renews it by hand needs some days.
_ENDS_SOON_S = 21 * _DAY_S
_LEAST_LOG_BYTES = 200 << 20
_LEAST_BYTES = 1 << 20


def judge_repositories(facts: Facts) -> Iterator[Finding]:
    for path, reason in facts.repository_problems.items():
        yield error(
            f"the model repository {path} cannot be used: {reason}",
            "Name a directory that has a directory for each model, and that this user can read.",
            f"zmqtriton check {path}",
        )


def judge_environment_cache(facts: Facts) -> Iterator[Finding]:
    place = facts.environment_cache
    if place is None:
        return
    is_needed = any(model.requirements for model in facts.model_pythons)
    judge = error if is_needed else note
    name = "Name another directory with --environment-directory."
    if not place.is_writable:
        yield judge(
            f"environments of models cannot be kept in {place.path}: this user may not write there",
            name,
            f"ls -ld {place.path}",
        )
    elif not place.can_execute:
        yield judge(
            f"environments of models cannot run from {place.path}: it is mounted noexec",
            name,
            f"findmnt -T {place.path}",
        )
    elif place.free_bytes < _GIB:
        yield warning(
            f"the disk of {place.path} has {place.free_bytes >> 20} MiB left; an environment "
            "of a model takes up to several GiB",
            f"Remove those that are no longer used, or free the disk. {name}",
            "zmqtriton-ctl env list",
        )


def judge_log(facts: Facts) -> Iterator[Finding]:
    place = facts.log_directory
    if place is None:
        return
    if not place.is_writable:
        yield error(
            f"the log cannot be written: {place.path} is missing, or this user may not write there",
            "Correct the rights, or name another file with --log-file.",
            f"ls -ld {place.path}",
        )
    elif place.free_bytes < _LEAST_LOG_BYTES:
        yield _full_disk(place, "the log", "Lines are lost when it is full.")


def judge_temporary(facts: Facts) -> Iterator[Finding]:
    place = facts.temporary
    if place is not None and not place.is_writable:
        yield error(
            f"no runtime directory can be made: this user may not write to {place.path}",
            "Name one with --runtime-directory, or a writable TMPDIR.",
            f"ls -ld {place.path}",
        )
    elif place is not None and place.free_bytes < _LEAST_BYTES:
        yield _full_disk(place, "runtime directories", "A server cannot start when it is full.")


def _full_disk(place: Place, use: str, effect: str) -> Finding:
    return warning(
        f"the disk of {place.path}, for {use}, has {place.free_bytes >> 20} MiB left",
        f"{effect} Free some of it.",
        f"df -h {place.path}",
    )


def judge_runtime_directories(facts: Facts) -> Iterator[Finding]:
    stale = [each.path for each in facts.runtime_directories if each.is_stale]
    if stale:
        yield note(
            f"a server that was killed has left {', '.join(stale)}",
            "The next server of this user removes it.",
            *(f"rm -r {path}" for path in stale),
        )
    for each in facts.runtime_directories:
        if each.problem:
            yield error(
                f"the runtime directory {each.path} cannot be used: {each.problem}",
                "Name another one with --runtime-directory, or let the server make one.",
                f"ls -ld {each.path}",
            )
        elif each.is_silent:
            yield error(
                f"the server in {each.path} is alive and does not answer",
                "Its supervisor is stopped, or waits for a disk.",
                f"fuser {each.path}/lock",
            )
        elif each.is_forbidden:
            yield note(
                f"a server in {each.path} would be another user's, and this user may not ask it",
                "Ask as that user or as root.",
                f"sudo zmqtriton-ctl --runtime-directory {each.path} doctor",
            )


def judge_certificates(facts: Facts) -> Iterator[Finding]:
    for each in facts.certificates:
        yield from _judge_certificate(each, facts.now_s)


def _judge_certificate(each: Certificate, now_s: float) -> Iterator[Finding]:
    what, look = f"the certificate {each.path}", f"openssl x509 -noout -dates -in {each.path}"
    if each.problem:
        yield error(
            f"{each.option}: {each.path} and {each.key_path} cannot be used: {each.problem}",
            "The certificate and its key must belong together, in PEM form without a password, "
            "readable to the server's user.",
            f"ls -l {each.path} {each.key_path}",
        )
    elif now_s >= each.ends_s:
        yield error(
            f"{what} has expired, {_date(each.ends_s)}",
            "Replace the files; the server reads them again by itself.",
            look,
        )
    elif now_s < each.begins_s:
        yield error(
            f"{what} is valid only from {_date(each.begins_s)}", "Is the clock right?", look
        )
    elif each.ends_s - now_s < _ENDS_SOON_S:
        days = int((each.ends_s - now_s) / _DAY_S)
        left = "today" if not days else f"in {days} day{'s' * (days != 1)}"
        yield warning(
            f"{what} expires {left}, {_date(each.ends_s)}",
            "Replace the files in time; the server reads them again by itself.",
            look,
        )
    if each.is_key_public:
        yield warning(
            f"every user of this machine can read the key {each.key_path}",
            "Whoever has it can pretend to be this server.",
            f"chmod 600 {each.key_path}",
        )


def _date(moment_s: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(moment_s))


def judge_secret_files(facts: Facts) -> Iterator[Finding]:
    for each in facts.secret_files:
        if each.problem:
            yield error(
                f"--{each.option}: {each.path} cannot be used: {each.problem}",
                "The server does not start with it.",
                f"ls -l {each.path}",
            )
        elif each.is_public:
            yield warning(
                f"every user of this machine can read {each.path}, the file of --{each.option}",
                "Whoever reads it may learn who has access.",
                f"chmod 600 {each.path}",
            )
