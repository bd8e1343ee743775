"""A finding: one thing that a check, the doctor or an explanation has to say.

All commands print it in one way, and give it to programs with the same names of fields.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any

from zmqtriton_floor.logs import escape_lines


class Severity(Enum):
    """The importance of a finding, the most important first."""

    #: Something does not work, or a model or a server cannot start.
    ERROR = "error"
    #: Something works badly, or will soon not work.
    WARNING = "warning"
    #: Nothing is wrong; this may explain something.
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    #: One line: the reason first.
    text: str
    _: KW_ONLY
    severity: Severity = Severity.ERROR
    #: The model that it is about, or "".
    model: str = ""
    #: The file or the directory, or "". Line and column count from 1; 0 is unknown.
    path: str = ""
    line: int = 0
    column: int = 0
    #: Text of the parser or other program that has noticed the fault; it says more than `text`.
    detail: str = ""
    #: The name that was probably meant, or "".
    suggestion: str = ""
    #: The remedy, in a sentence or two.
    advice: str = ""
    #: True if the text says why no request is completed, in place of a guess that the model hangs.
    is_of_standstill: bool = False
    #: Commands for the user to type, in this order.
    commands: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The place as editors and compilers write it."""
        return ":".join(str(part) for part in (self.path, self.line, self.column) if part)

    @property
    def rank(self) -> int:
        """Place of the severity in their order; 0 is the most important."""
        return list(Severity).index(self.severity)

    @property
    def reason(self) -> str:
        return self.detail or self.text

    @property
    def hint(self) -> str:
        return f" Did you mean '{self.suggestion}'?" if self.suggestion else ""

    def lines(self, *heads: str) -> list[str]:
        """Return the lines for people; the heads that are not empty precede the text."""
        stop = "." if self.hint and not self.reason.endswith((".", "?")) else ""
        # clients and models choose parts of them
        reason = escape_lines(f"{self.reason}{stop}{self.hint}")
        advice = [f"  {self.advice}"] if self.advice else []
        commands = zip(("next", *["then"] * len(self.commands)), self.commands, strict=False)
        below = (f"  {word}: {command}" for word, command in commands)
        return [": ".join([*filter(None, heads), reason]), *map(escape_lines, [*advice, *below])]

    def document(self, *names: str) -> dict[str, Any]:
        """Return the fields of these names, for programs."""
        fields = {
            **vars(self),
            "severity": self.severity.value,
            "commands": list(self.commands),
        }
        return {name: fields[name] for name in names}

    @staticmethod
    def error(text: str, advice: str, *commands: str) -> Finding:
        return Finding(text, severity=Severity.ERROR, advice=advice, commands=commands)

    @staticmethod
    def warning(text: str, advice: str, *commands: str) -> Finding:
        return Finding(text, severity=Severity.WARNING, advice=advice, commands=commands)

    @staticmethod
    def note(text: str, advice: str, *commands: str) -> Finding:
        return Finding(text, severity=Severity.NOTE, advice=advice, commands=commands)
