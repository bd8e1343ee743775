"""Conversations at /v1/realtime, as OpenAI's own client for Python has them."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.journal import read_journal
from tests.support.needs import Later
from tests.support.process_memory import peak_mib
from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually
from zmqtriton_extras.web_sockets.frames import TEXT
from zmqtriton_extras.web_sockets.tests.conversations import client_frame

if TYPE_CHECKING:
    import openai
else:
    openai = Later("openai")


OPTIONS = ["--allow-openai"]
pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore:connect.. must be used as a context:DeprecationWarning"),
    pytest.mark.server(models=["parrot"], options=OPTIONS, frontends=()),
]
CANCEL = {"type": "response.cancel"}
HANDSHAKE = (
    "GET /v1/realtime?model=parrot HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def message(text: str, own_id: str | None = None) -> Any:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return item if own_id is None else {**item, "id": own_id}


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60
    ) as client:
        yield client


@pytest.fixture
def connection(client: openai.OpenAI) -> Iterator[Any]:
    with client.realtime.connect(model="parrot") as connection:
        session: Any = connection.recv()
        assert (session.type, session.session.model) == ("session.created", "parrot")
        yield connection


def until(connection: Any, kind: str) -> list[Any]:
    """Return the events up to the next one of a kind."""
    events: list[Any] = []
    while not events or events[-1].type != kind:
        events.append(connection.recv())
        assert kind == "error" or events[-1].type != "error", events[-1]
    return events


def test_a_conversation_is_answered_with_text_as_it_grows(connection: Any) -> None:
    connection.session.update(
        session={"type": "realtime", "output_modalities": ["text"], "instructions": "Repeat."}
    )
    updated = until(connection, "session.updated")[-1]
    connection.conversation.item.create(item=message("one two three"))
    created = until(connection, "conversation.item.done")[-1]
    connection.response.create()
    events = until(connection, "response.done")

    assert updated.session.instructions == "Repeat."
    assert created.item.content[0].text == "one two three"
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == ["one", " two", " three"]
    response = events[-1].response
    assert (response.status, response.output[0].content[0].text) == ("completed", "one two three")
    assert response.usage.output_tokens == 3
    assert len({event.response_id for event in events if hasattr(event, "response_id")}) == 1


def test_a_conversation_goes_on_with_what_was_said(connection: Any) -> None:
    for text in ("first", "second"):
        connection.conversation.item.create(item=message(text, f"item-{text}"))
        until(connection, "conversation.item.done")
        connection.response.create()
        done = until(connection, "response.done")[-1]
        assert text == done.response.output[0].content[0].text
    own_id = done.response.output[0].id

    connection.conversation.item.retrieve(item_id=own_id)
    assert until(connection, "conversation.item.retrieved")[-1].item.content[0].text == "second"
    # the last of it is what the model repeats
    for item_id in (own_id, "item-second"):
        connection.conversation.item.delete(item_id=item_id)
        assert item_id == until(connection, "conversation.item.deleted")[-1].item_id
    connection.conversation.item.create(item=message("zero"), previous_item_id="root")
    until(connection, "conversation.item.done")
    connection.response.create()
    assert "first" in until(connection, "response.done")[-1].response.output[0].content[0].text


def test_a_response_may_be_no_part_of_the_conversation(connection: Any) -> None:
    connection.response.create(
        response={
            "conversation": "none",
            "input": [message("apart from it")],
            "max_output_tokens": 2,
            "metadata": {"topic": "aside"},
        }
    )
    events = until(connection, "response.done")
    connection.response.create()
    refused = until(connection, "error")[-1]

    response = events[-1].response
    assert (response.status, response.status_details.reason) == ("incomplete", "max_output_tokens")
    assert (
        response.output[0].content[0].text,
        response.metadata,
    ) == ("apart from", {"topic": "aside"})
    assert not [event for event in events if event.type.startswith("conversation.")]
    assert "at least one item" in refused.error.message


def test_a_response_is_cancelled_and_its_model_knows(server: Server, connection: Any) -> None:
    connection.conversation.item.create(item=message("well FOREVER"))
    connection.response.create()
    until(connection, "response.output_text.delta")

    connection.response.create(event_id="early")
    busy = until(connection, "error")[-1].error
    connection.response.cancel()
    done = until(connection, "response.done")[-1].response

    assert (busy.code, busy.event_id) == ("conversation_already_has_active_response", "early")
    assert (done.status, done.status_details.reason) == ("cancelled", "client_cancelled")
    assert done.output[0].status == "incomplete"
    eventually(lambda: done.id in _cancelled(server), 30)
    connection.response.cancel()
    assert until(connection, "error")[-1].error.code == "response_cancel_not_active"


def test_a_response_may_be_cancelled_before_it_has_begun(server: Server) -> None:
    begun = {
        "type": "response.create",
        "response": {"input": [message("FOREVER")], "conversation": "none"},
    }
    frames = [client_frame(TEXT, json.dumps(one).encode()) for one in (begun, CANCEL)]
    with socket.create_connection(("127.0.0.1", server.http_port)) as client:
        client.settimeout(60)
        client.sendall(HANDSHAKE.encode() + b"".join(frames))
        received = b""
        while b'"response.done"' not in received:
            received += client.recv(1 << 16)
        client.sendall(frames[0])
        while received.count(b'"response.created"') < 2:
            received += client.recv(1 << 16)

    assert b"response_cancel_not_active" not in received
    assert b"conversation_already_has_active_response" not in received


def test_a_client_that_leaves_is_known_to_the_model(server: Server, client: openai.OpenAI) -> None:
    with client.realtime.connect(model="parrot") as connection:
        connection.conversation.item.create(item=message("FOREVER"))
        connection.response.create()
        own_id = until(connection, "response.output_text.delta")[-1].response_id

    eventually(lambda: own_id in _cancelled(server), 30)


def test_a_model_that_fails_fails_its_response_alone(connection: Any) -> None:
    connection.conversation.item.create(item=message("one FAIL", "bad"))
    connection.response.create()
    failed = until(connection, "response.done")[-1].response
    connection.conversation.item.create(item=message("again"))
    connection.response.create()

    assert (failed.status, failed.status_details.error.message) == ("failed", "the word is FAIL")
    assert until(connection, "response.done")[-1].response.status == "completed"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"type": "input_audio_buffer.append", "audio": ""}, "'type' must be one of session"),
        ({"type": "session.update"}, "'session' must be an object"),
        (
            {"type": "session.update", "session": {"output_modalities": ["audio"]}},
            "'output_modalities' must be [\"text\"]",
        ),
        ({"type": "session.update", "session": {"model": "x"}}, "'model' must be parrot"),
        ({"type": "session.update", "session": {"tools": 1}}, "'tools'"),
        ({"type": "session.update", "session": {"max_output_tokens": -1}}, "'max_output_tokens'"),
        (
            {"type": "conversation.item.create", "item": {"type": "message", "role": "me"}},
            "'item.role' must be one of",
        ),
        (
            {
                "type": "conversation.item.create",
                "item": {"role": "user", "content": [{"type": "input_audio", "audio": "x"}]},
            },
            "parts of type 'input_text' only",
        ),
        (
            {"type": "conversation.item.create", "item": message("x"), "previous_item_id": "no"},
            "must be the id of an item",
        ),
        ({"type": "conversation.item.delete", "item_id": "no"}, "must be the id of an item"),
        ({"type": "response.create", "response": {"input": 1}}, "must be a list"),
        ({"type": "response.create", "response": {"audio": {"output": 1}}}, "'audio'"),
        ([], "must be a JSON object"),
    ],
)
def test_an_event_that_is_wrong_is_an_error_and_nothing_else(
    connection: Any, event: Any, text: str
) -> None:
    own = {**event, "event_id": "mine"} if type(event) is dict else event
    connection._connection.send(json.dumps(own))

    error = until(connection, "error")[-1].error
    assert text in error.message, error
    assert ("mine" if type(event) is dict else None) == error.event_id
    connection.conversation.item.create(item=message("still here"))
    connection.response.create()
    assert until(connection, "response.done")[-1].response.status == "completed"


def test_what_is_no_json_is_an_error(connection: Any) -> None:
    connection._connection.send("{")

    assert "JSON" in until(connection, "error")[-1].error.message


@pytest.mark.parametrize(("model", "status"), [("missing", 404), ("", 400)])
def test_a_model_that_is_not_there_is_refused_before_the_handshake(
    client: openai.OpenAI, model: str, status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        client.realtime.connect(model=model).enter()

    assert status == refused.value.response.status_code
    assert b"'model'" in refused.value.response.body or b"missing" in refused.value.response.body


def test_a_coroutine_has_a_conversation(server: Server) -> None:
    async def play() -> str:
        async with (
            openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
            client.realtime.connect(model="parrot") as connection,
        ):
            await connection.conversation.item.create(item=message("a b"))
            await connection.response.create()
            async for event in connection:
                if event.type == "response.output_text.done":
                    return str(event.text)
        return ""

    assert asyncio.run(play()) == "a b"


def _cancelled(server: Server) -> set[str]:
    """Return the responses whose end the model has seen; other tests may have left some."""
    return {record.id for record in read_journal(server.journal) if record.event == "cancelled"}


@pytest.mark.long(
    "extras/openai/test_realtime_room.py::test_a_long_answer_has_room_and_gives_it_back",
    "extras/web_sockets/test_turns.py::test_streams_without_end_leave_others_their_turn",
)
def test_a_turn_of_60_mib_holds_up_no_other_client(tmp_path: Path) -> None:
    """Sixty requests of another client are answered between its first byte and its end."""
    item = json.dumps({"type": "conversation.item.create", "item": message("y" * (15 << 20))})
    options = {"max_size": None, "open_timeout": 60, "ping_interval": None}
    with Server(tmp_path / "s", ["parrot", "add_sub"], options=OPTIONS, frontends=()) as server:
        is_over, answered = threading.Event(), [0]

        def ask() -> None:
            while not is_over.is_set():
                assert ask_add_sub(server) == 200
                answered[0] += 1

        asking = threading.Thread(target=ask)
        asking.start()
        url = f"ws://127.0.0.1:{server.http_port}/v1/realtime?model=parrot"
        try:
            with connect(url, **options) as client:  # type: ignore[arg-type]
                eventually(lambda: answered[0], 60, "another client")
                before = answered[0]
                respond = json.dumps({"type": "response.create"})
                rows = [(item, "conversation.item.done")] * 4 + [(respond, "response.done")]
                for sent, last in rows:
                    client.send(sent)
                    while json.loads(client.recv(timeout=240))["type"] != last:
                        pass
                assert answered[0] >= before + 60
        finally:
            is_over.set()
            asking.join()
        # the conversation, the text of its prompt, and events that are being sent
        assert peak_mib(server, "http") < 800
