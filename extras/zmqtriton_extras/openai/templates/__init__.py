"""Templates of chats, in Jinja, as they come with language models: a chat becomes a prompt.

They run in a sandbox, which gives them access to nothing but their arguments. Their time is not
limited by it, so they run in processes (`__main__.py`) that `children.py` starts and ends.
"""

from __future__ import annotations

import json
import time
from functools import lru_cache
from typing import Any

from zmqtriton.sdk.wire import InternalError, InvalidArgument, Unsupported

#: Templates that are kept compiled.
_MAX_TEMPLATES = 64


#: Maximum bytes of a prompt.
MAX_BYTES = 64 << 20
#: Requests and answers begin with their length.
LENGTH_BYTES = 4
#: Outcomes of a request; a response begins with the number of its outcome.
OUTCOMES = ("prompt", "messages", "internal", "InvalidArgument", "Unsupported")
#: First output of a process that can render.
READY = b"ready\n"


class RefusedChatError(Exception):
    """Raised if a template refuses the messages."""


class _Refused(Exception):
    """Raised by a template that refuses the messages."""


def render(
    model: str,
    text: str,
    messages: list[dict[str, Any]],
    variables: str,
    tools: list[dict[str, Any]] | None = None,
) -> str:
    """Return the prompt that a template makes of a chat; `variables` is a JSON object, or "".

    Raises Unsupported without Jinja, InternalError for an invalid template, InvalidArgument for
    invalid variables, RefusedChatError if it fails for these messages, and MemoryError.
    """
    template = _compile(model, text)
    values = {**_variables(model, variables), "messages": messages, "add_generation_prompt": True}
    if tools:
        values["tools"] = tools
    try:
        return str(template.render(values))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it raises, it is about these messages
        raise RefusedChatError(
            f"the chat template of model '{model}' does not take these messages, send others: "
            f"{error}"
        ) from None


@lru_cache(_MAX_TEMPLATES)
def _compile(model: str, text: str) -> Any:
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise Unsupported(
            f"model '{model}' has a chat template, which needs Jinja: pip install jinja2"
        ) from None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    # as in transformers, for which such templates are written
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = time.strftime
    environment.globals.update(bos_token="", eos_token="", tools=None)
    try:
        return environment.from_string(text)
    except jinja2.TemplateSyntaxError as error:
        raise InternalError(
            f"the chat template of model '{model}' needs a correction in line {error.lineno}: "
            f"{error.message}"
        ) from None


def _variables(model: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(
            f"the parameter openai_chat_template_variables of model '{model}' must be a JSON object"
        )
    return found


def _to_json(value: Any, **options: Any) -> str:
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _refuse(message: Any) -> None:
    raise _Refused(message)
