"""The way to the process of jobs, where that dies amid a question."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.jobs import channel as channels
from zmqtriton_extras.jobs import messages
from zmqtriton_extras.jobs.channel import Answer, Channel
from zmqtriton_extras.jobs.messages import PART_BYTES, Document
from zmqtriton_floor.errors import Unavailable


class Process:
    """Answers on its socket, or dies after some questions, or amid its bytes."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.questions: list[Document] = []
        self.dies = 0
        self.contents = b""
        self.at_once = PART_BYTES + 1000

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                document, size = await messages.read_head(reader)
                await messages.Body(reader, size).drop()
            except EOFError:
                break
            self.questions.append(document)
            if self.dies:
                self.dies -= 1
                break
            contents = self.contents[document.get("skip", 0) :]
            writer.write(messages.head({"number": len(self.questions)}, len(contents)))
            writer.write(contents[: self.at_once])
            if len(contents) > self.at_once:
                break
        writer.close()


def run(path: Path, test: Callable[[Process, Channel], Coroutine[Any, Any, None]]) -> None:
    async def all_of_it() -> None:
        process = Process(path)
        async with await asyncio.start_unix_server(process.serve, process.path):
            channel = Channel(process.path)
            await asyncio.wait_for(test(process, channel), 20)
            for _, writer in channel._idle:
                writer.close()
                await writer.wait_closed()

    asyncio.run(all_of_it())


async def read(answer: Answer) -> bytes:
    return b"".join([part async for part in answer.parts()])


def test_a_question_is_asked_again_if_the_process_dies(tmp_path: Path) -> None:
    async def test(process: Process, channel: Channel) -> None:
        assert (await channel.ask({"verb": "show"})).document["number"] == 1
        process.dies = 2

        answer = await channel.ask({"verb": "submit", "id": "1"}, [b"body"])

        assert answer.document["number"] == 4
        assert process.questions[1:] == [{"verb": "submit", "id": "1"}] * 3

    run(tmp_path / "socket", test)


def test_bytes_go_on_where_the_process_died(tmp_path: Path) -> None:
    async def test(process: Process, channel: Channel) -> None:
        process.contents = random.Random(0).randbytes(3 * PART_BYTES + 5)

        answer = await channel.ask({"verb": "file content"})

        assert process.contents == await read(answer)
        skips = [None, PART_BYTES, 2 * PART_BYTES]
        assert skips == [each.get("skip") for each in process.questions]

    run(tmp_path / "socket", test)


def test_bytes_end_with_an_error_where_the_next_process_has_others(tmp_path: Path) -> None:
    async def test(process: Process, channel: Channel) -> None:
        process.contents = bytes(3 * PART_BYTES)
        answer = await channel.ask({"verb": "file content"})
        process.contents = b""  # a refusal: the file is gone

        with pytest.raises(Unavailable):
            await read(answer)

    run(tmp_path / "socket", test)


def test_bytes_that_no_process_has_are_not_asked_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(process: Process, channel: Channel) -> None:
        process.contents, process.at_once = bytes(3 * PART_BYTES), 0
        answer = await channel.ask({"verb": "file content"})

        with pytest.raises(EOFError):
            await read(answer)

    monkeypatch.setattr(channels, "_WITHIN_S", 0.5)
    run(tmp_path / "socket", test)
