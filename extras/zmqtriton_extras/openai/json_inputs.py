"""Inputs of OpenAI's API that are JSON, for other add-ons.

They know only that some texts are JSON, and an example.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.sdk.models import config_parameter

#: The name of an input without the parameter that names it, and an example, by parameter.
_JSON_INPUTS: Mapping[str, tuple[str, object]] = {
    "openai_messages_input": ("messages", [{"role": "user", "content": "hello"}]),
    "openai_sampling_parameters_input": ("sampling_parameters", {"max_tokens": 16}),
    "openai_tools_input": ("tools", []),
    "openai_tool_choice_input": ("tool_choice", "auto"),
    "openai_response_format_input": ("response_format", {"type": "text"}),
}
#: The backend whose other requests another add-on prints.
_FUNCTIONS = "functions"


def json_example(config: Mapping[str, Any], name: str) -> str:
    """Return example JSON for a model's input of this name; "" if the input is not JSON."""
    for parameter, (usual, example) in _JSON_INPUTS.items():
        if name == (config_parameter(config, parameter) or usual):
            return json.dumps(example)
    return ""


def requests(name: str, config: Mapping[str, Any], options: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the JSON of a chat, and a comment, for a model that reads messages."""
    if not config_parameter(config, "openai_messages_input"):
        return
    if options.value("allow_openai"):
        _, messages = _JSON_INPUTS["openai_messages_input"]
        yield "/v1/chat/completions", json.dumps({"model": name, "messages": messages})
        yield "", f'# OpenAI\'s client: base_url="{{url}}/v1", model="{name}"'
    elif config.get("backend") == _FUNCTIONS:
        yield "", "# For OpenAI's clients, start it with --allow-openai"
