"""OpenAI's API as an extension of the HTTP frontend: its routes, and their description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import falcon.asgi

from zmqtriton.sdk.frontend import (
    Gateway,
    HttpExtension,
    HttpRequest,
    ModelVersion,
    Route,
    extension,
)
from zmqtriton_extras.openai import fields, problems
from zmqtriton_extras.openai.tensor_names import names_of

if TYPE_CHECKING:
    from zmqtriton_extras.openai.realtime import Sessions
    from zmqtriton_extras.openai.text import Texts

_CATEGORY = "openai"
#: Paths of readiness: vLLM's, and that of Triton's frontend for this API.
_HEALTH = ("/health", "/health/ready")
_JSON = "application/json"

_OPERATIONS = {
    "Texts.chat": extension.Operation(
        "Continue a chat; with `stream` as server-sent events, the last one `[DONE]`",
        "ChatCompletionRequest",
        "ChatCompletion",
        _JSON,
    ),
    "Texts.complete": extension.Operation(
        "Continue a text; with `stream` as server-sent events, the last one `[DONE]`",
        "CompletionRequest",
        "Completion",
        _JSON,
    ),
    "Texts.respond": extension.Operation(
        "Continue a chat; with `stream` as server-sent events, each with its type",
        "ResponseRequest",
        "ResponseDocument",
        _JSON,
    ),
    "Realtime.converse": extension.Operation(
        "A WebSocket: a chat in the events of OpenAI's Realtime API, as far as texts go",
        query={"model": extension.STRING},
    ),
    "Embeddings.embed": extension.Operation(
        "A vector for each text", "EmbeddingRequest", "EmbeddingResponse", _JSON
    ),
    "Speech.speak": extension.Operation("Say a text: a sound, as it is made", "SpeechRequest"),
    "Transcriptions.transcribe": extension.Operation(
        "Write down a sound, the `file` of a form; with `stream` as server-sent events",
        "",
        "Transcription",
        _JSON,
    ),
    "Models.list_all": extension.Operation(
        "All models that serve, and their adapters", "", "OpenAIModels", _JSON
    ),
    "Models.show": extension.Operation("One model that serves", "", "OpenAIModel", _JSON),
}


_TEXT = "a few words of text"


def _chat(model: ModelVersion) -> dict[str, Any] | None:
    if not names_of(model).makes_chats:
        return None
    return {"model": model.name, "messages": [{"role": "user", "content": _TEXT}]}


def _response(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "input": _TEXT} if names_of(model).makes_chats else None


def _completion(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "prompt": _TEXT} if names_of(model).makes_texts else None


def _embedding(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "input": [_TEXT]} if names_of(model).makes_embeddings else None


def _speech(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "input": _TEXT} if names_of(model).makes_sounds else None


_EXAMPLES: dict[str, extension.Example] = {
    "Texts.chat": _chat,
    "Texts.complete": _completion,
    "Texts.respond": _response,
    "Embeddings.embed": _embedding,
    "Speech.speak": _speech,
}


def _number(values: fields.Range) -> dict[str, Any]:
    kind = "integer" if values.is_integer else "number"
    return {"type": kind, "description": f"{values.text[0].upper()}{values.text[1:]}."}


_TEXTS = {
    "type": ["string", "array"],
    "items": extension.STRING,
    "description": "One, or a list of them.",
}
_ANY = {"type": "object"}
_USAGE = extension.object_of(
    {
        "prompt_tokens": extension.COUNT,
        "completion_tokens": extension.COUNT,
        "total_tokens": extension.COUNT,
    },
    "prompt_tokens",
    "total_tokens",
)
_SAMPLING: dict[str, Any] = {
    **{field: _number(values) for field, values in fields.SAMPLING.items()},
    **dict.fromkeys(fields.FLAGS, extension.BOOLEAN),
    "stop": _TEXTS,
    "logit_bias": {"type": "object", "description": "By the numbers of tokens, from -100 to 100."},
}
_COMMON: dict[str, Any] = {
    **_SAMPLING,
    "stream": extension.BOOLEAN,
    "stream_options": extension.object_of({"include_usage": extension.BOOLEAN}),
    "n": extension.COUNT,
    "response_format": extension.object_of({"type": extension.STRING, "json_schema": _ANY}, "type"),
}
_TOOLS: dict[str, Any] = {
    "tools": extension.array_of(_ANY),
    "tool_choice": {"type": ["string", "object"]},
    "parallel_tool_calls": extension.BOOLEAN,
    "top_logprobs": _number(fields.TOP_LOGPROBS),
}
_MESSAGE = extension.object_of(
    {
        "role": extension.STRING,
        "content": {"type": ["string", "array", "null"], "items": _ANY},
        "tool_calls": extension.array_of(_ANY),
    },
    "role",
)


def _answer(choice: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": extension.COUNT, **choice, "finish_reason": extension.STRING}
    return extension.object_of(
        {
            "id": extension.STRING,
            "object": extension.STRING,
            "created": extension.COUNT,
            "model": extension.STRING,
            "choices": extension.array_of(extension.object_of(choice, "index")),
            "usage": extension.schema_named("Usage"),
        },
        "id",
        "object",
        "created",
        "model",
        "choices",
    )


_SCHEMAS: dict[str, Any] = {
    "OpenAIError": extension.object_of(
        {
            "error": extension.object_of(
                {
                    "message": extension.STRING,
                    "type": extension.STRING,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
                "message",
                "type",
                "param",
                "code",
            )
        },
        "error",
    ),
    "Usage": _USAGE,
    "ChatCompletionRequest": extension.object_of(
        {
            "model": extension.STRING,
            "messages": extension.array_of(_MESSAGE),
            "logprobs": extension.BOOLEAN,
            **_TOOLS,
            **_COMMON,
        },
        "model",
        "messages",
    ),
    "ChatCompletion": _answer({"message": _MESSAGE}),
    "CompletionRequest": extension.object_of(
        {
            "model": extension.STRING,
            "prompt": _TEXTS,
            "echo": extension.BOOLEAN,
            "logprobs": _number(fields.COMPLETION_LOGPROBS),
            **_COMMON,
        },
        "model",
        "prompt",
    ),
    "Completion": _answer({"text": extension.STRING}),
    "ResponseRequest": extension.object_of(
        {
            "model": extension.STRING,
            "input": {"type": ["string", "array"], "items": _ANY},
            "instructions": extension.STRING,
            "max_output_tokens": extension.COUNT,
            "text": extension.object_of({"format": _ANY}),
            "stream": extension.BOOLEAN,
            **_TOOLS,
            **_SAMPLING,
        },
        "model",
        "input",
    ),
    "ResponseDocument": extension.object_of(
        {
            "id": extension.STRING,
            "object": extension.STRING,
            "created_at": extension.COUNT,
            "status": extension.STRING,
            "model": extension.STRING,
            "output": extension.array_of(_ANY),
            "usage": _ANY,
        },
        "id",
        "object",
        "status",
        "model",
        "output",
    ),
    "EmbeddingRequest": extension.object_of(
        {
            "model": extension.STRING,
            "input": _TEXTS,
            "encoding_format": {"type": "string", "enum": ["float", "base64"]},
        },
        "model",
        "input",
    ),
    "EmbeddingResponse": extension.object_of(
        {
            "object": extension.STRING,
            "model": extension.STRING,
            "data": extension.array_of(
                extension.object_of(
                    {
                        "object": extension.STRING,
                        "index": extension.COUNT,
                        "embedding": {"type": ["array", "string"], "items": {"type": "number"}},
                    },
                    "object",
                    "index",
                    "embedding",
                )
            ),
            "usage": extension.schema_named("Usage"),
        },
        "object",
        "data",
        "model",
        "usage",
    ),
    "SpeechRequest": extension.object_of(
        {
            "model": extension.STRING,
            "input": extension.STRING,
            "voice": extension.STRING,
            "instructions": extension.STRING,
            "response_format": {"type": "string", "enum": ["wav", "pcm"]},
        },
        "model",
        "input",
    ),
    "Transcription": extension.object_of(
        {
            "text": extension.STRING,
            "task": extension.STRING,
            "language": extension.STRING,
            "duration": {"type": ["number", "null"]},
        },
        "text",
    ),
    "OpenAIModel": extension.object_of(
        {
            "id": extension.STRING,
            "object": extension.STRING,
            "created": extension.COUNT,
            "owned_by": extension.STRING,
        },
        "id",
        "object",
        "created",
        "owned_by",
    ),
    "OpenAIModels": extension.object_of(
        {
            "object": extension.STRING,
            "data": extension.array_of(extension.schema_named("OpenAIModel")),
        },
        "object",
        "data",
    ),
}

DESCRIPTIONS = extension.RouteDescriptions(_OPERATIONS, _EXAMPLES, _SCHEMAS, "OpenAIError")


class Realtime:
    """The responder of WebSockets; its modules are loaded by the first client."""

    def __init__(self, gateway: Gateway, texts: Texts) -> None:
        self._parts = gateway, texts
        self._sessions: Sessions | None = None

    async def converse(self, req: HttpRequest, resp: falcon.asgi.Response) -> None:
        if self._sessions is None:
            from zmqtriton_extras.openai.realtime import Sessions

            self._sessions = Sessions(*self._parts)
        await self._sessions.converse(req, resp)


def routes(gateway: Gateway) -> list[Route]:
    """Return the routes; a restriction of `inference` or `metadata` also applies to them."""
    # only now: a server without the API need not load it
    from zmqtriton_extras.openai.calls import Models
    from zmqtriton_extras.openai.embeddings import Embeddings
    from zmqtriton_extras.openai.speech import Speech
    from zmqtriton_extras.openai.text import Texts
    from zmqtriton_extras.openai.transcriptions import Transcriptions

    transcribe = Transcriptions(gateway).transcribe
    texts, embeddings, models = Texts(gateway), Embeddings(gateway), Models(gateway)
    return [
        Route("POST", "/v1/chat/completions", _CATEGORY, texts.chat, "inference"),
        Route("POST", "/v1/completions", _CATEGORY, texts.complete, "inference"),
        Route("POST", "/v1/responses", _CATEGORY, texts.respond, "inference"),
        Route("GET", "/v1/realtime", _CATEGORY, Realtime(gateway, texts).converse, "inference"),
        Route("POST", "/v1/embeddings", _CATEGORY, embeddings.embed, "inference"),
        Route("POST", "/v1/audio/speech", _CATEGORY, Speech(gateway).speak, "inference"),
        Route("POST", "/v1/audio/transcriptions", _CATEGORY, transcribe, "inference"),
        Route("GET", "/v1/models", _CATEGORY, models.list_all, "metadata"),
        Route("GET", "/v1/models/{model:name}", _CATEGORY, models.show, "metadata"),
    ]


def _routes(gateway: Gateway) -> Sequence[Route]:
    return routes(gateway) if gateway.settings.option("allow_openai") else ()


def _with_health(gateway: Gateway, table: list[Route]) -> Sequence[Route]:
    """Return the table with health routes by the paths of other OpenAI servers."""
    if not gateway.settings.option("allow_openai"):
        return table
    ready = next(route for route in table if route.path == "/v2/health/ready")
    return [*table, *(ready._replace(path=path) for path in _HEALTH)]


def _descriptions(gateway: Gateway) -> extension.RouteDescriptions:
    return (
        DESCRIPTIONS if gateway.settings.option("allow_openai") else extension.RouteDescriptions()
    )


EXTENSION = HttpExtension(
    _routes, problems.PREFIX, problems.Form(), _descriptions, around=_with_health
)
