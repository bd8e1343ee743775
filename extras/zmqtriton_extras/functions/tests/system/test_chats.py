"""Functions get the messages of chats as OpenAI's client sends them, and answer with messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.needs import Later
from tests.support.server import Server

if TYPE_CHECKING:
    import openai
else:
    openai = Later("openai")

pytestmark = [pytest.mark.system, pytest.mark.extra("openai")]

#: Repeats what it was called with, as JSON.
ECHO = """
import json
from typing import Dict, List, Optional
from zmqtriton import model

@model
def echo(
    messages: List[dict],
    tools: Optional[List[dict]] = None,
    response_format: Optional[dict] = None,
    temperature: float = 1.0,
    max_tokens: int = 16,
    stop: Optional[List[str]] = None,
) -> str:
    return json.dumps(locals())
"""
#: Its only parameter is the messages of a class, and its answer a stream.
STREAM = """
from dataclasses import dataclass
from typing import Iterator, List, Optional
from zmqtriton import model

@dataclass
class Message:
    role: str
    content: str

@model
def stream(messages: List[Message]) -> Iterator[str]:
    for each in messages:
        yield f"{each.role} says {each.content}. "
"""
#: Calls a tool, and repeats its result.
AGENT = """
from typing import List, Optional
from zmqtriton import model

@model
def agent(messages: List[dict], tools: Optional[List[dict]] = None, tool_choice: str = "") -> dict:
    if messages[-1]["role"] == "system":
        return {"role": "assistant", "content": tool_choice}
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "content": "It is " + messages[-1]["content"]}
    function = {"name": tools[0]["function"]["name"], "arguments": '{"city": "Rome"}'}
    call = {"id": "call-1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}

@model
def no_message(messages: List[dict]) -> dict:
    return {"role": "assistant", "content": 5}
"""
#: The same by outputs with the names of a message's fields, and in parts.
TYPED = """
from typing import Iterator, List, Optional, TypedDict
from zmqtriton import model

class Message(TypedDict):
    role: str
    content: Optional[str]
    tool_calls: List[dict]

@model
def typed(messages: List[dict], tools: Optional[List[dict]] = None) -> Message:
    call = {"name": tools[0]["function"]["name"], "arguments": {"city": "Rome"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}

@model
def parts(messages: List[dict], tools: Optional[List[dict]] = None) -> Iterator[dict]:
    yield {"role": "assistant", "content": "I "}
    yield {"content": "ask."}
    yield {"tool_calls": [{"name": "weather", "arguments": {"city": "Rome"}}]}
"""
#: Hints of pydantic and the standard library in place of a plain dict.
HINTS = """
from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Optional, Union
from pydantic import BaseModel
from zmqtriton import model

class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Union[str, List[Dict[str, Any]], None] = None
    tool_calls: List[Dict[str, Any]] = []
    tool_call_id: Optional[str] = None

@dataclass
class Answer:
    content: str
    role: str = "assistant"

@model
def hints(
    messages: List[Message],
    tools: List[Dict[str, Any]],
    tool_choice: Union[Literal["auto", "none"], Dict[str, Any]],
) -> Union[str, Answer]:
    text = f"{[each.role for each in messages]} {len(messages[1].content)} {len(tools)} "
    text += repr(tool_choice)
    return Answer(text) if tools else text
"""
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
HISTORY: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call-1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call-1", "content": "sunny"},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("chats")
    server = Server(directory / "server", options=("--allow-openai",), frontends=())
    server.write_model("echo", "", ECHO)
    server.write_model("stream", "", STREAM)
    for name, source in (("agent", AGENT), ("no_message", AGENT)):
        server.write_model(name, "", source)
    for name, source in (("typed", TYPED), ("parts", TYPED)):
        server.write_model(name, "", source)
    server.write_model("hints", "", HINTS)
    with server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", timeout=120, max_retries=0
    ) as client:
        yield client


def test_a_function_gets_messages_as_they_are_and_the_fields_that_it_names(
    client: openai.OpenAI,
) -> None:
    answer: Any = client.chat.completions.create(
        model="echo",
        messages=HISTORY,
        response_format={"type": "json_object"},
        temperature=0.5,
        max_tokens=7,
        stop="END",
        seed=1,
    )

    said = json.loads(answer.choices[0].message.content or "")
    assert {
        "messages": HISTORY,
        "tools": None,
        "response_format": {"type": "json_object"},
        "temperature": 0.5,
        "max_tokens": 7,
        "stop": ["END"],
    } == said


def test_what_a_client_leaves_out_has_its_default(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="echo", messages=HISTORY[:1])

    said = json.loads(answer.choices[0].message.content or "")
    expected = [HISTORY[:1], None, None, 1.0, 16, None]
    assert expected == [*said.values()]


def test_messages_of_a_class_and_a_stream_of_texts(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    create: Any = client.chat.completions.create

    parts = [*create(model="stream", messages=messages, stream=True)]

    texts = [part.choices[0].delta.content for part in parts]
    assert ["user says a. ", "assistant says b. "] == [*filter(None, texts)]
    whole = create(model="stream", messages=messages).choices[0].message.content
    assert "user says a. assistant says b. " == whole
    with pytest.raises(openai.BadRequestError, match=r"messages\.0\.'name'"):
        create(model="stream", messages=[{"role": "user", "content": "a", "name": "me"}])


@pytest.mark.parametrize("model", ["agent", "typed"])
def test_a_message_that_a_function_returns_has_calls_of_tools(
    client: openai.OpenAI, model: str
) -> None:
    answer: Any = client.chat.completions.create(
        model=model, messages=HISTORY[1:2], tools=[WEATHER]
    )

    [choice] = answer.choices
    assert ("tool_calls", None) == (choice.finish_reason, choice.message.content)
    [call] = choice.message.tool_calls or []
    assert ("weather", {"city": "Rome"}) == (
        call.function.name,
        json.loads(call.function.arguments),
    )


def test_a_function_gets_the_result_of_a_tool(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create

    answer = create(model="agent", messages=HISTORY, tools=[WEATHER])
    assert "It is sunny" == answer.choices[0].message.content
    forced = {"type": "function", "function": {"name": "weather"}}
    answer = create(model="agent", messages=HISTORY[1:2], tools=[WEATHER], tool_choice=forced)
    assert answer.choices[0].message.tool_calls


def test_a_choice_of_tools_is_the_word_or_json(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    messages = HISTORY[:1]
    forced = {"type": "function", "function": {"name": "weather"}}

    for choice, said in (("auto", "auto"), (forced, json.dumps(forced, separators=(",", ":")))):
        answer = create(model="agent", messages=messages, tools=[WEATHER], tool_choice=choice)
        assert said == answer.choices[0].message.content


def test_hints_of_pydantic_and_dataclasses(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    tool = {"type": "function", "function": {"name": "weather"}}

    said = [
        create(model="hints", messages=HISTORY, **more).choices[0].message.content
        for more in ({}, {"tools": [WEATHER]}, {"tools": [WEATHER], "tool_choice": tool})
    ]

    roles = "['system', 'user', 'assistant', 'tool'] 2"
    assert [f"{roles} 0 'none'", f"{roles} 1 'auto'", f"{roles} 1 {tool}"] == said


def test_a_stream_of_messages_is_one_message_in_parts(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create

    parts = [*create(model="parts", messages=HISTORY, tools=[WEATHER], stream=True)]

    deltas = [part.choices[0].delta for part in parts]
    assert "I ask." == "".join(delta.content or "" for delta in deltas)
    [[call]] = [delta.tool_calls for delta in deltas if delta.tool_calls]
    assert ("weather", "tool_calls") == (call.function.name, parts[-1].choices[0].finish_reason)
    message = create(model="parts", messages=HISTORY, tools=[WEATHER]).choices[0].message
    assert ("I ask.", 1) == (message.content, len(message.tool_calls))


def test_responses_are_chats_as_well(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="echo", instructions="Be brief.", input="hi")

    said = json.loads(answer.output_text)["messages"]
    assert ["Be brief.", "hi"] == [message["content"] for message in said]
    tool: Any = {"type": "function", **WEATHER["function"]}
    answer = client.responses.create(model="agent", input="hi", tools=[tool])
    assert ["function_call"] == [each.type for each in answer.output]


def test_an_answer_that_is_no_message_is_an_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="must hold a message, such as"):
        client.chat.completions.create(model="no_message", messages=HISTORY)


def test_a_chat_is_a_function_over_plain_json_as_well(server: Server) -> None:
    answer = server.exchange("/agent", json.dumps({"messages": HISTORY}).encode())

    assert {"output": {"role": "assistant", "content": "It is sunny"}} == answer.document
