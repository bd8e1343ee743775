"""Writes a new chat model, which OpenAI clients can call."""

from __future__ import annotations

import json
import shlex

from zmqtriton_extras.authoring.new_model.client_code import HTTP_PORT

_QUESTION = "tell me a story"
_CONFIG = """\
backend: "python"
max_batch_size: 0

input [
  # The chat: a JSON list of messages, as OpenAI's clients send it.
  { name: "messages", data_type: TYPE_STRING, dims: [ 1 ] },
  # A JSON object of what the client has chosen: max_tokens, temperature, stop and others.
  { name: "sampling_parameters", data_type: TYPE_STRING, dims: [ 1 ], optional: true }
]
output [
  { name: "text_output", data_type: TYPE_STRING, dims: [ 1 ] }
]
parameters { key: "openai_messages_input" value { string_value: "messages" } }

# An answer is a stream of pieces.
model_transaction_policy { decoupled: true }

# How many processes run the model.
instance_group [ { count: 1, kind: KIND_CPU } ]
"""
_MODEL = '''\
"""{name}: continues chats; with --allow-openai at /v1/chat/completions."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        """Called once in each process: load the language model here."""
        pb_utils.Logger.log_info(f"hello from {{args['model_instance_name']}}")

    def generate(self, messages, sampling):
        """Yield the answer piece by piece. Replace this by your language model."""
        words = messages[-1]["content"].split()
        for word in words[: sampling.get("max_tokens", 256)]:
            yield word.upper() + " "

    def execute(self, requests):
        """Called with the requests of a batch; responses go through senders, also from threads."""
        for request in requests:
            self.answer(request)

    def answer(self, request):
        messages = json.loads(text(request, "messages", "[]"))
        sampling = json.loads(text(request, "sampling_parameters", "{{}}"))
        sender = request.get_response_sender()
        for piece in self.generate(messages, sampling):
            if request.is_cancelled():  # the client has gone
                break
            output = pb_utils.Tensor("text_output", np.array([piece.encode()], np.object_))
            sender.send(pb_utils.InferenceResponse([output]))
        # Each request needs this once, as the last word.
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def text(request, name, default):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return default if tensor is None else tensor.as_numpy()[0].decode()
'''
_TEST = '''\
"""The model {name}, tested without a server: pytest test_{name}.py"""

import json
from pathlib import Path

from zmqtriton.testing import load_model

MODEL = Path(__file__).parent / {directory} / "{name}"
MESSAGES = [{{"role": "user", "content": "{question}"}}]


def test_a_chat_is_continued():
    inputs = {{"messages": [json.dumps(MESSAGES)], "sampling_parameters": ['{{"max_tokens": 3}}']}}
    with load_model(MODEL) as model:
        pieces = [outputs["text_output"][0].decode() for outputs in model.stream(inputs)]

    assert pieces == ["TELL ", "ME ", "A "]
'''
_CLIENT = '''\
"""Chats with the model {name} of a server: python client_{name}.py [HOST:PORT]

Needs: pip install openai
"""

import sys

import openai

SERVER = sys.argv[1] if len(sys.argv) > 1 else "localhost:{port}"
MESSAGES = [{{"role": "user", "content": "{question}"}}]

client = openai.OpenAI(base_url=f"http://{{SERVER}}/v1", api_key="none", max_retries=0)
try:
    for event in client.chat.completions.create(model="{name}", messages=MESSAGES, stream=True):
        print(event.choices[0].delta.content or "", end="", flush=True)
except openai.APIConnectionError as error:
    sys.exit(f"no server answers on {{SERVER}}: {{error}}")
print()
'''


def chat_texts(name: str, directory: str) -> tuple[str, str, str, str]:
    """Return the configuration, the code, the test and the client of a model in a directory."""
    facts = {
        "name": name,
        "directory": json.dumps(directory),
        "question": _QUESTION,
        "port": HTTP_PORT,
    }
    return _CONFIG, _MODEL.format(**facts), _TEST.format(**facts), _CLIENT.format(**facts)


def chat_curl(name: str) -> str:
    """Return a command line that calls the model."""
    body = {"model": name, "messages": [{"role": "user", "content": _QUESTION}]}
    words = f"localhost:{HTTP_PORT}/v1/chat/completions -d {shlex.quote(json.dumps(body))}"
    return f"curl -sN {words}"
