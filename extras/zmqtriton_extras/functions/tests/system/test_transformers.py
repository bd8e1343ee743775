"""The model of transformers in the guide on many streams, with weights that are made here.

`make test KIND=frameworks` has transformers installed.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.needs import ROOT
from tests.support.server import Server

pytest.importorskip("transformers")
pytestmark = [pytest.mark.system, pytest.mark.frameworks]

GUIDE = ROOT / "docs" / "guides" / "many-streams.md"
PROMPTS = ["a", "a broker", "messages on, and on", "passes a broker on", "on", "b", "m p", "é"]


def test_chats_of_any_lengths_say_together_what_each_says_alone(tmp_path: Path) -> None:
    import torch
    import transformers

    from zmqtriton_extras.openai.tests.system.test_language_models import make_weights

    weights = tmp_path / "weights"
    make_weights(weights)
    tmp_path.chmod(0o755)
    [code] = re.findall(r"```python\n(import torch\n.*?)```", GUIDE.read_text(), re.DOTALL)
    server = Server(tmp_path / "server", frontends=())
    server.write_model("llm", "", code.replace("Qwen/Qwen3-0.6B", str(weights)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    net = transformers.AutoModelForCausalLM.from_pretrained(weights)

    def alone(prompt: str, count: int) -> str:
        tokens = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.inference_mode():
            made = net.generate(
                tokens,
                max_new_tokens=count,
                do_sample=False,
                use_cache=False,
                eos_token_id=tokenizer.eos_token_id,  # made by chance, it ends the guide's text
            )
        return str(tokenizer.decode(made[0, tokens.shape[1] :], skip_special_tokens=True))

    with server, ThreadPoolExecutor(len(PROMPTS)) as threads:

        def ask(place: int) -> str:
            document = {"prompt": PROMPTS[place], "max_tokens": 20 + 5 * place}
            events = server.exchange("/llm", json.dumps(document).encode()).body.decode()
            return "".join(json.loads(row)["output"] for row in re.findall("data: (.*)\n", events))

        texts = list(threads.map(ask, range(len(PROMPTS))))

    assert [alone(prompt, 20 + 5 * place) for place, prompt in enumerate(PROMPTS)] == texts
