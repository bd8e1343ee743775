"""Texts of findings, and files of a machine that is prepared."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zmqtriton.findings import Finding

NOBODY = 65534
MIB = 1 << 20


def texts(findings: Iterable[Finding]) -> list[str]:
    """Return the findings, of which each is one line and says what helps."""
    listed = list(findings)
    for finding in listed:
        assert finding.advice.endswith((".", ":", "?"))
        assert finding.commands
        assert "\n" not in finding.text
    return [f"{finding.severity.value}: {finding.text}" for finding in listed]


def only(findings: Iterable[Finding]) -> str:
    (text,) = texts(findings)
    return text


def lacking(judged: Iterable[str], *parts: str) -> list[str]:
    """Return the parts that are missing in their findings, each of which has one."""
    return [part for text, part in zip(judged, parts, strict=True) if part not in text]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def model(repository: Path, name: str, parameter: str = "", value: str = "") -> Path:
    config = f'name: "{name}"\nbackend: "python"\n'
    if parameter:
        value = f'{{ string_value: "{value}" }}'
        config += f'parameters {{ key: "{parameter}" value {value} }}\n'
    write(repository / name / "config.pbtxt", config)
    write(repository / name / "1" / "model.py", "")
    return repository / name


def disk(monkeypatch: pytest.MonkeyPatch, free: int = MIB << 20, **more: Any) -> None:
    """Have all disks be of this kind."""
    system = {"f_blocks": 64 * MIB, "f_bavail": free, "f_frsize": 1, "f_flag": 0, **more}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**system))


@contextmanager
def as_user(number: int) -> Iterator[None]:
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)
