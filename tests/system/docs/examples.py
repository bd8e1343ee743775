"""The code blocks of a page of the documentation, and the comments that say how a test runs them.

A block is fenced, or indented by four spaces. Without a comment a block is run as it is printed:

- Python, by the interpreter; a block of `$ ` lines, command by command, each answering as printed;
- lines that begin with a known command, by the shell; a command that serves, in the background;
- a piece of `config.pbtxt`, by the parser of configurations.

A comment before a block adds to that; readers of the page do not see it:

    <!-- example: file PATH -->       the block is this file, which is there from the beginning
    <!-- example: append PATH -->     add the block to this file, which is there
    <!-- example: shows PATH -->      this file has these lines, and comments beside them
    <!-- example: output -->          the command before has printed these lines
    <!-- example: log -->             the server prints these lines
    <!-- example: form -->            numbers may be others than printed
    <!-- example: soon -->            a command is typed again until it prints what is printed
    <!-- example: serves -->          the script runs in the background, as a server
    <!-- example: tested: PATH -->    this test runs the block
    <!-- example: not run: REASON -->
    <!-- example: before              run these commands first
    COMMANDS
    -->

In what is printed `…` stands for any text, and alone on its line for any lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: The first words of lines that are typed into a shell.
COMMANDS = frozenset(
    "zmqtriton zmqtriton-ctl tritonserver curl python python3 pytest pip node npm mkdir cp export"
    " cat sudo openssl ray docker podman go protoc systemctl apt install haproxy kubectl".split()
)
KINDS = (
    "file",
    "append",
    "shows",
    "output",
    "log",
    "form",
    "soon",
    "serves",
    "tested",
    "not run",
    "before",
)
_COMMENT = re.compile(r"<!-- example: (.*?)\s*-->", re.DOTALL)
_ANY_LINES = "…"


class Note(NamedTuple):
    """A comment's word about the next block, and what follows the word."""

    kind: str
    text: str


class Block(NamedTuple):
    page: str
    line: int
    #: "" if the block is indented.
    language: str
    text: str
    notes: tuple[Note, ...]

    def note(self, kind: str) -> str | None:
        """Return the text of the note of this kind."""
        return next((note.text for note in self.notes if note.kind == kind), None)

    @property
    def first_word(self) -> str:
        return self.text.split(maxsplit=1)[0].lstrip(".") or "."

    @property
    def is_session(self) -> bool:
        return self.text.startswith("$ ")

    @property
    def is_shell(self) -> bool:
        return not self.language and (self.first_word in COMMANDS or self.text.startswith(". "))

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


class Exchange(NamedTuple):
    """A command of a session, and what it prints."""

    command: str
    output: str


def read_blocks(path: Path, root: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    return list(_blocks(path.read_text("utf-8"), path.relative_to(root).as_posix()))


def _blocks(text: str, page: str) -> Iterator[Block]:
    lines = text.split("\n")
    notes: list[Note] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.lstrip().startswith("<!-- example: "):
            end = next(i for i in range(index, len(lines)) if lines[i].endswith("-->"))
            notes.append(_note("\n".join(lines[index : end + 1]).strip()))
        elif line.startswith("```"):
            end = next(i for i in range(index + 1, len(lines)) if lines[i].startswith("```"))
            body = "\n".join(lines[index + 1 : end]) + "\n"
            yield Block(page, index + 1, line[3:].strip(), body, tuple(notes))
            notes = []
        elif line.startswith("    ") and not lines[index - 1].strip():
            end = index
            while end + 1 < len(lines) and (
                lines[end + 1].startswith("    ") or not lines[end + 1]
            ):
                end += 1
            body = "\n".join(line[4:] for line in lines[index : end + 1]).rstrip() + "\n"
            yield Block(page, index + 1, "", body, tuple(notes))
            notes = []
        else:
            end = index
        index = end + 1


def _note(comment: str) -> Note:
    match = _COMMENT.fullmatch(comment)
    assert match is not None, comment
    kind = next((kind for kind in KINDS if re.match(rf"{kind}\b", match[1])), "")
    assert kind, f"no such note: {comment}"
    return Note(kind, match[1][len(kind) :].strip(" :\n"))


def split_session(text: str) -> list[Exchange]:
    """Split a block of `$ ` lines and what they print."""
    exchanges: list[Exchange] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            exchanges.append(Exchange(line[2:], ""))
            continue
        command, output = exchanges[-1]
        if not output and _is_open(command):
            exchanges[-1] = Exchange(f"{command}\n{line}", "")
        else:
            exchanges[-1] = Exchange(command, f"{output}{line}\n")
    return exchanges


def split_commands(text: str) -> list[str]:
    """Split the lines of a block into commands, some of which have several lines."""
    commands: list[str] = []
    for line in text.splitlines():
        if commands and _is_open(commands[-1]):
            commands[-1] += f"\n{line}"
        elif line.strip():
            commands.append(line)
    assert not (commands and _is_open(commands[-1])), f"no whole command: {commands[-1]}"
    return commands


def _is_open(command: str) -> bool:
    """Tell whether the shell would wait for more of a command."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return command.endswith("\\")


def output_pattern(expected: str, *, is_form: bool) -> re.Pattern[str]:
    """Return what fits the printed text: with its numbers, or with any in their form."""
    lines = [
        r"(?:.*\n)*?" if line.strip() == _ANY_LINES else _line_pattern(line, is_form) + r"\n"
        for line in expected.rstrip("\n").split("\n")
    ]
    return re.compile("".join(lines))


def log_pattern(expected: str, *, is_form: bool) -> re.Pattern[str]:
    """Return what fits these lines in a log, each with something around it, others between."""
    lines = [rf".*{_line_pattern(line, is_form)}.*\n" for line in expected.split("\n") if line]
    return re.compile(r"(?:.*\n)*?".join(lines))


def _line_pattern(line: str, is_form: bool) -> str:
    parts = re.split(r"(…|-?\d[\d.]*|[ \t]+)", line.rstrip())
    return "".join(_part_pattern(part, is_form) for part in parts) + r"[ \t]*"


def _part_pattern(part: str, is_form: bool) -> str:
    if part == _ANY_LINES:
        return ".*?"
    if part.isspace():
        return r"\s+" if is_form else r"[ \t]+"
    if is_form and re.fullmatch(r"-?\d[\d.]*", part):
        return r"-?\d[\d.]*"
    return re.escape(part)
