"""Texts of the description of OpenAI's API: what openapi_text.py has for the core."""

from __future__ import annotations

from typing import Any

from zmqtriton_addons.web_apis.openai.tensor_names import TensorNames
from zmqtriton_frontends.http_api.control.openapi_text import Example, Operation, RouteDescriptions
from zmqtriton_frontends.inference.catalogue import ModelVersion

_JSON = "application/json"

_OPERATIONS = {
    "Texts.chat": Operation(
        "Continue a chat; with `stream` as server-sent events, the last one `[DONE]`",
        "ChatCompletionRequest",
        "ChatCompletion",
        _JSON,
    ),
    "Texts.complete": Operation(
        "Continue a text; with `stream` as server-sent events, the last one `[DONE]`",
        "CompletionRequest",
        "Completion",
        _JSON,
    ),
    "Embeddings.embed": Operation(
        "A vector for each text", "EmbeddingRequest", "EmbeddingResponse", _JSON
    ),
    "Models.list_all": Operation("All models that serve", "", "OpenAIModels", _JSON),
    "Models.show": Operation("One model that serves", "", "OpenAIModel", _JSON),
}


_TEXT = "a few words of text"


def _chat(model: ModelVersion) -> dict[str, Any] | None:
    if not _names(model).makes_chats:
        return None
    return {"model": model.name, "messages": [{"role": "user", "content": _TEXT}]}


def _completion(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "prompt": _TEXT} if _names(model).makes_texts else None


def _embedding(model: ModelVersion) -> dict[str, Any] | None:
    return {"model": model.name, "input": [_TEXT]} if _names(model).makes_embeddings else None


def _names(model: ModelVersion) -> TensorNames:
    return TensorNames(model.config, model.signature)


_EXAMPLES: dict[str, Example] = {
    "Texts.chat": _chat,
    "Texts.complete": _completion,
    "Embeddings.embed": _embedding,
}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        found["required"] = list(required)
    return found


def _array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _schema(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_STRING = {"type": "string"}
_BOOLEAN = {"type": "boolean"}
_NUMBER = {"type": "number"}
_COUNT = {"type": "integer", "minimum": 0}
_TEXTS = {"type": ["string", "array"], "description": "One, or a list of them."}
_USAGE = _object(
    {"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT},
    *("prompt_tokens", "total_tokens"),
)
_SAMPLING = {
    "stream": _BOOLEAN,
    "stream_options": _object({"include_usage": _BOOLEAN}),
    "n": _COUNT,
    "max_tokens": _COUNT,
    "stop": _TEXTS,
    "seed": {"type": "integer"},
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "frequency_penalty": _NUMBER,
    "presence_penalty": _NUMBER,
}
_MESSAGE = _object(
    {"role": _STRING, "content": {"type": ["string", "array"]}}, *("role", "content")
)


def _answer(choice: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": _COUNT, **choice, "finish_reason": _STRING}
    return _object(
        {
            "id": _STRING,
            "object": _STRING,
            "created": _COUNT,
            "model": _STRING,
            "choices": _array(_object(choice, "index")),
            "usage": _schema("Usage"),
        },
        *("id", "object", "created", "model", "choices"),
    )


_SCHEMAS: dict[str, Any] = {
    "OpenAIError": _object(
        {
            "error": _object(
                {
                    "message": _STRING,
                    "type": _STRING,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
                *("message", "type", "param", "code"),
            )
        },
        "error",
    ),
    "Usage": _USAGE,
    "ChatCompletionRequest": _object(
        {"model": _STRING, "messages": _array(_MESSAGE), **_SAMPLING}, "model", "messages"
    ),
    "ChatCompletion": _answer({"message": _MESSAGE}),
    "CompletionRequest": _object(
        {"model": _STRING, "prompt": _TEXTS, "echo": _BOOLEAN, **_SAMPLING}, "model", "prompt"
    ),
    "Completion": _answer({"text": _STRING}),
    "EmbeddingRequest": _object(
        {
            "model": _STRING,
            "input": _TEXTS,
            "encoding_format": {"type": "string", "enum": ["float", "base64"]},
        },
        *("model", "input"),
    ),
    "EmbeddingResponse": _object(
        {
            "object": _STRING,
            "model": _STRING,
            "data": _array(
                _object(
                    {
                        "object": _STRING,
                        "index": _COUNT,
                        "embedding": {"type": ["array", "string"]},
                    },
                    *("object", "index", "embedding"),
                )
            ),
            "usage": _schema("Usage"),
        },
        *("object", "data", "model", "usage"),
    ),
    "OpenAIModel": _object(
        {"id": _STRING, "object": _STRING, "created": _COUNT, "owned_by": _STRING},
        *("id", "object", "created", "owned_by"),
    ),
    "OpenAIModels": _object(
        {"object": _STRING, "data": _array(_schema("OpenAIModel"))}, "object", "data"
    ),
}

DESCRIPTIONS = RouteDescriptions(_OPERATIONS, _EXAMPLES, _SCHEMAS, "OpenAIError")
