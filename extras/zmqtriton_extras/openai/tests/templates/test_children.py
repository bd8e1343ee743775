"""Real processes of templates, which are ended and hurt no other model's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest
import uvloop

from tests.support.scenarios import scenario
from tests.support.waiting import eventually
from zmqtriton_extras.openai.templates import children as module
from zmqtriton_extras.openai.templates.children import Children, request_of
from zmqtriton_floor.errors import InternalError

pytestmark = pytest.mark.slow

LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
NUMBERS = "{% set n = 10 ** (10 ** 9) %}"
GROWING = LOOPS.replace("{% endfor %}", "{{ 'a' * 10000 }}{% endfor %}", 1)


def play(scenario: Callable[[Children], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        children = Children()
        try:
            await asyncio.wait_for(scenario(children), 120)
        finally:
            await children.close()

    uvloop.run(all_of_it())
    eventually(lambda: not processes(), 30, "the processes have ended")


def processes() -> list[psutil.Process]:
    """Return those of templates; this process may have others, such as a server."""
    children = psutil.Process().children(recursive=True)
    living = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in living if child.name() == "zmqtriton-chat"]


def ask(children: Children, model: str, template: str) -> Awaitable[str]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "é"}]
    return children.render(model, "", request_of(model, template, messages, ""))


@scenario(play)
async def test_a_process_renders_one_chat_after_the_other(children: Children, /) -> None:
    first = await ask(children, "m", "{{ messages[0].content }}")
    [process] = processes()

    assert first == await ask(children, "m", "{{ messages | map(attribute='content') | join }}")
    assert [process] == processes()
    assert first == "é"


@pytest.mark.parametrize("template", [LOOPS, NUMBERS])
@scenario(play)
async def test_a_template_without_an_end_is_ended_and_keeps_no_other_model_waiting(
    children: Children, /, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(children, "other", "1")
    await ask(children, "m", "1")
    monkeypatch.setattr(module, "WITHIN_S", 1.0)
    endless = asyncio.ensure_future(ask(children, "m", template))
    await asyncio.sleep(0)

    assert await ask(children, "other", "{{ 1 + 1 }}") == "2"
    assert not endless.done()
    with pytest.raises(InternalError, match="of model 'm' takes longer than 1 s"):
        await endless
    monkeypatch.undo()
    assert await ask(children, "m", "{{ 1 + 2 }}") == "3"


@scenario(play)
async def test_a_template_that_takes_much_memory_gets_none(children: Children, /) -> None:
    with pytest.raises(InternalError, match="of model 'm' takes too much memory"):
        await ask(children, "m", "{{ messages[0].content * 10 ** 10 }}")

    assert await ask(children, "m", "1") == "1"


@scenario(play)
async def test_who_leaves_ends_a_template_that_grows(children: Children, /) -> None:
    await ask(children, "m", "1")
    [process] = processes()
    growing = asyncio.ensure_future(ask(children, "m", GROWING))
    await asyncio.sleep(0.3)
    growing.cancel()

    await asyncio.gather(growing, return_exceptions=True)
    assert await ask(children, "m", "1") == "1"
    await asyncio.to_thread(process.wait, 60)


@scenario(play)
async def test_a_process_can_open_nothing_and_has_a_limit_of_memory(children: Children, /) -> None:
    await ask(children, "m", "1")
    [process] = processes()

    assert process.rlimit(psutil.RLIMIT_NOFILE) == (3, 3)
    assert max(process.rlimit(psutil.RLIMIT_AS)) <= 1 << 29
    assert {"PATH"} <= process.environ().keys() <= set(module._VARIABLES) | {"LC_CTYPE"}


@scenario(play)
async def test_so_many_processes_are_kept_and_no_more(children: Children, /) -> None:
    for number in range(module.MAX_PROCESSES + 2):
        await ask(children, f"m{number}", "1")

    assert len(processes()) <= module.MAX_PROCESSES


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
@scenario(play)
async def test_a_process_runs_as_the_user_of_its_model(children: Children, /) -> None:
    await children.render("m", "nobody", request_of("m", "1", [], ""))
    [process] = processes()

    assert process.username() == "nobody"
