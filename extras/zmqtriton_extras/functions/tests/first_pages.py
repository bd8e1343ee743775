"""The first pages of other systems: their models, arguments for each, and the answers."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent.parent / "examples" / "first_pages"
_HEAD = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 58, 0, 0, 54, 40, 1, 1, 1, 32, *[0] * 6)
PICTURE = _HEAD + b"\x01\x02\x03\x00"
INVERTED = _HEAD + b"\xfe\xfd\xfc\xff"
HISTORY = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Good day."},
    {"role": "user", "content": "Who are you?"},
]


class Page(NamedTuple):
    """A file, its model, and a request to it as JSON."""

    file: str
    model: str
    arguments: dict[str, Any]
    #: Name to value; a picture is its bytes.
    answer: dict[str, Any]
    #: Lines of code on the other system's page, without those that are empty.
    lines: int

    def document(self) -> dict[str, Any]:
        """The arguments as JSON."""
        return {
            n: base64.b64encode(v).decode() if type(v) is bytes else v
            for n, v in self.arguments.items()
        }


PAGES = (
    Page("cog", "predictor", {"image": PICTURE}, {"output": INVERTED}, 14),
    Page("litserve", "inference_pipeline", {"input": 2.0}, {"output": 12.0}, 14),
    Page(
        "bentoml",
        "summarization",
        {"texts": "It rains. All day long."},
        {"output": "It rains."},
        14,
    ),
    Page(
        "truss",
        "classify",
        {"text": "great day"},
        {"output": [{"label": "POSITIVE", "score": 0.5}]},
        8,
    ),
    Page("ray_serve", "translator", {"text": "Hello world"}, {"output": "bonjour monde"}, 19),
    Page(
        "mlserver",
        "answers",
        {"questions": ["it rains", "who"], "context": ["it rains", "you"]},
        {"output": [1.0, 0.0]},
        18,
    ),
    Page("mosec", "stable_diffusion", {"prompt": "a cat"}, {}, 30),
    Page("modal", "square", {"x": 7}, {"output": 49}, 13),
    Page(
        "fastapi",
        "update_item",
        {"item_id": 3, "item": {"name": "cup", "price": 1.5}},
        {"output": {"item_name": "cup", "item_id": 3}},
        16,
    ),
    Page("gradio", "greet", {"name": "Ada", "intensity": 2}, {"output": "Hello, Ada!!"}, 9),
    Page(
        "transformers",
        "fill_mask",
        {"text": "more [MASK]"},
        {
            "output": [
                {"score": 0.75, "token_str": "rain", "sequence": "more rain"},
                {"score": 0.25, "token_str": "snow", "sequence": "more snow"},
            ]
        },
        28,
    ),
    Page(
        "openai_chat",
        "chat",
        {"messages": HISTORY},
        {"output": "3 messages, the last one: Who are you?"},
        9,
    ),
    Page(
        "sklearn",
        "boosting_model",
        {
            "rows": [
                {"petal length": 1.4, "petal width": 0.2},
                {"petal length": 4.7, "petal width": 1.4},
            ]
        },
        {"output": [{"result": "setosa"}, {"result": "versicolor"}]},
        19,
    ),
)
