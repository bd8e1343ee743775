"""The language model of the guide: its code with transformers, and weights that are made here.

`make test KIND=frameworks` has transformers installed.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import ROOT
from tests.support.server import Server
from zmqtriton.main import main

pytest.importorskip("transformers")
pytestmark = [pytest.mark.system, pytest.mark.frameworks]

GUIDE = ROOT / "docs" / "guides" / "language-models.md"
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if messages[0]['content'] == 'fail' %}{{ raise_exception('as it was asked') }}{% endif %}"
    "assistant:"
)


def make_weights(directory: Path) -> None:
    """Make a language model with a template, and random weights, always the same."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(3)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(["a broker passes messages on"], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(directory)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=4096,
        eos_token_id=None,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(directory)


def code_of_the_guide() -> str:
    """Return the methods of the guide's model, as they stand in its class."""
    text = GUIDE.read_text("utf-8").partition("\n## transformers\n")[2]
    return textwrap.indent(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], "    ")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("llm")
    make_weights(place / "weights")
    server = Server(place / "s", options=["--allow-openai"], frontends=())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main(["new", "llm", "--chat", f"--directory={server.repository}"]) == 0
    model = server.repository / "llm"
    code = (model / "1" / "model.py").read_text()
    replaced = code[code.index("    def initialize(") : code.index("    def execute(")]
    (model / "1" / "model.py").write_text(code.replace(replaced, code_of_the_guide() + "\n"))
    with (model / "config.pbtxt").open("a") as config:
        value = f'value {{ string_value: "{place}/weights" }}'
        config.write(f'parameters {{ key: "weights" {value} }}\n')
    with server:
        yield server


def ask(server: Server, content: str, **fields: Any) -> tuple[int, Any]:
    messages = [{"role": "user", "content": content}]
    return server.request_json(
        "/v1/chat/completions", {"model": "llm", "messages": messages, **fields}
    )


def test_a_chat_is_continued(server: Server) -> None:
    status, answer = ask(server, "what is a broker", max_tokens=12, temperature=0)

    assert status == 200
    assert answer["choices"][0]["message"]["content"] != ""


def test_an_error_of_the_model_reaches_the_client_and_the_next_chat_is_answered(
    server: Server,
) -> None:
    status, answer = ask(server, "fail")

    assert status == 500
    assert "as it was asked" in json.dumps(answer)
    assert ask(server, "what is a broker", max_tokens=2)[0] == 200
