"""Runs the code blocks of a page as a reader types them, in their order, on one desk."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

from tests.support.needs import ROOT
from tests.system.docs.desk import Desk
from tests.system.docs.examples import (
    Block,
    Exchange,
    log_pattern,
    output_pattern,
    read_blocks,
    split_session,
)
from zmqtriton.config.pbtxt import parse_text

_SOON_S = 30.0


def run_page(page: str) -> None:
    """Run all blocks of a page; raise AssertionError at the first that is not as printed."""
    with (
        # sockets must have short paths
        tempfile.TemporaryDirectory(prefix="desk-", dir="/var/tmp") as directory,
        Desk(Path(directory)) as desk,
    ):
        reader = _Reader(desk)
        blocks = read_blocks(ROOT / page, ROOT)
        for block in blocks:
            reader.write(block)
        for block in blocks:
            try:
                reader.run(block)
            except AssertionError as error:
                raise AssertionError(f"{block.place}: {error}") from error


class _Reader:
    """A reader who types one block after the other."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._output = ""

    def run(self, block: Block) -> None:
        if (commands := block.note("before")) is not None:
            self._output = self._desk.type(commands)
        if block.note("not run") or block.note("tested"):
            return
        if (name := block.note("append")) is not None:
            path = self._desk.path(name)
            path.write_text(path.read_text() + block.text)
        elif block.note("file") is not None:
            self.write(block)
        elif (name := block.note("shows")) is not None:
            content = self._desk.path(name).read_text()
            assert _without_comments(block.text) in _without_comments(content), (
                f"{name} contains\n{content}"
            )
        elif block.note("output") is not None:
            pattern = self._pattern(block.text, block)
            assert pattern.search(f"{self._output}\n"), f"printed is\n{self._output}"
        elif block.note("log") is not None:
            is_form = block.note("form") is not None
            self._desk.await_log(log_pattern(self._desk.in_place(block.text), is_form=is_form))
        else:
            self._execute(block)

    def write(self, block: Block) -> None:
        """Write the file that the block is, if it is one."""
        if (name := block.note("file")) is not None:
            path = self._desk.path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._desk.in_place(block.text))

    def _execute(self, block: Block) -> None:
        if block.language == "python":
            self._desk.path("example.py").write_text(self._desk.in_place(block.text))
            if block.note("serves") is not None:
                self._desk.serve("python example.py")
            else:
                self._output = self._desk.type("python example.py")
        elif block.is_session:
            for exchange in split_session(block.text):
                self._converse(exchange, block)
        elif block.is_shell:
            self._output = self._desk.type(block.text)
        else:
            assert not block.language, f"nothing runs {block.language}"
            parse_text(block.text, block.place)

    def _pattern(self, expected: str, block: Block) -> re.Pattern[str]:
        is_form = block.note("form") is not None
        return output_pattern(self._desk.in_place(expected), is_form=is_form)

    def _converse(self, exchange: Exchange, block: Block) -> None:
        """Type a command of a session, and compare what it prints."""
        if not exchange.output.strip():
            self._output = self._desk.type(exchange.command)
            return
        pattern = self._pattern(exchange.output, block)
        deadline = time.monotonic() + (_SOON_S if block.note("soon") is not None else 0)
        while True:
            _, self._output = self._desk.run(exchange.command)
            if pattern.fullmatch(self._output.rstrip("\n") + "\n"):
                return
            assert time.monotonic() < deadline, (
                f"{exchange.command}\nprints\n{self._output}\nand not\n{exchange.output}\n"
                f"{self._desk.log_text()[-3000:]}"
            )


def _without_comments(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(lines)
