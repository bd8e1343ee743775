"""Reads a Dockerfile: as much of its language as ours uses."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class Instruction(NamedTuple):
    #: In capitals.
    name: str
    value: str
    #: The stage that it belongs to, from 0; -1 before the first.
    stage: int

    @property
    def words(self) -> list[str]:
        """Return the list of JSON that it has."""
        words = json.loads(self.value)
        assert isinstance(words, list)
        return words


def read(path: Path) -> list[Instruction]:
    """Return the instructions, each on one line."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    instructions: list[Instruction] = []
    stage = -1
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        name, _, value = line.strip().partition(" ")
        if name:
            stage += name == "FROM"
            instructions.append(Instruction(name, value.strip(), stage))
    return instructions


def context_files(root: Path, ignore: Path) -> Iterator[PurePosixPath]:
    """Iterate over the files that an ignore file leaves, which first excludes everything."""
    rules = [
        line.strip()
        for line in ignore.read_text("utf-8").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    assert rules[0] == "*"
    top = [rule[1:] for rule in rules if rule.startswith("!")]
    excluded = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    for path in sorted(root.iterdir()):
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in top):
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                relative = file.relative_to(root)
                if file.is_file() and not set(excluded) & set(relative.parts):
                    yield PurePosixPath(relative)
