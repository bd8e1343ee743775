"""A finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """The importance of a finding, the most important first."""

    #: Something does not work, or a server cannot start.
    ERROR = "error"
    #: Something works badly, or will soon not work.
    WARNING = "warning"
    #: Nothing is wrong; this may explain something.
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    severity: Severity
    #: One line: the reason first.
    text: str
    advice: str
    #: To be typed.
    commands: tuple[str, ...] = ()


def error(text: str, advice: str, *commands: str) -> Finding:
    return Finding(Severity.ERROR, text, advice, commands)


def warning(text: str, advice: str, *commands: str) -> Finding:
    return Finding(Severity.WARNING, text, advice, commands)


def note(text: str, advice: str, *commands: str) -> Finding:
    return Finding(Severity.NOTE, text, advice, commands)
