"""JSON, pictures, sounds and files as arguments and answers."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.functions.backend.kinds import MismatchError
from zmqtriton_extras.functions.backend.media import Audio
from zmqtriton_extras.functions.interface import interface_of
from zmqtriton_extras.functions.tests.test_functions import loaded
from zmqtriton_extras.functions.tests.test_interface import ask
from zmqtriton_floor.errors import ZmqTritonError

SOURCE = """
from dataclasses import dataclass, field
from typing import Dict, List, Literal, Optional, TypedDict
from zmqtriton import model

class Place(TypedDict, total=False):
    city: str
    near: Optional["Place"]

@dataclass
class Person:
    name: str
    places: List[Place] = field(default_factory=list)
    kind: Literal["a", "b"] = "a"

@model
def caption(person: Person, table: Dict[str, int], rest: dict = {}) -> Person:
    person.name += str(sum(table.values())) + str(rest)
    return person
"""

PERSON = {"name": "Ada", "places": [{"city": "Rom", "near": {"city": "Ostia"}}, {}]}


def test_a_dataclass_is_json_and_its_fields_are_checked(tmp_path: Path) -> None:
    with loaded(tmp_path, SOURCE) as model:
        answer = ask(model, {"person": PERSON, "table": {"x": 3}})
        text = np.array([json.dumps(PERSON)], object)
        outputs = model.infer(person=text, table=np.array(["{}"], object))
        interface = interface_of(model.config)

    assert {**PERSON, "name": "Ada3{}", "kind": "a"} == answer["output"]
    assert "Ada{}" not in outputs["output"][0].decode()
    assert "Ada0{}" == json.loads(outputs["output"][0])["name"]
    assert interface is not None
    person = interface.input["properties"]["person"]
    assert ["name"] == person["required"]
    assert ["a", "b"] == person["properties"]["kind"]["enum"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": 1}, "person.name: Input should be a valid string, got an integer"),
        ({"other": 1}, "person.'other': Unexpected keyword argument"),
        (
            {"places": {}},
            "person.places: Input should be a valid list, got an object of 0 members",
        ),
        (
            {"places": [{"near": {"city": 1}}]},
            "person.places.0.near.city: Input should be a valid string, got an integer",
        ),
        ({"kind": "c"}, "person.kind: Input should be 'a' or 'b'"),
    ],
)
def test_a_document_that_is_wrong_is_refused_with_its_place(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    with loaded(tmp_path, SOURCE) as model, pytest.raises(ZmqTritonError) as caught:
        ask(model, {"person": {**PERSON, **changes}, "table": {}})

    assert text == caught.value.text
    assert "InvalidArgument" == type(caught.value).__name__


def test_values_of_a_dict_are_checked(tmp_path: Path) -> None:
    with loaded(tmp_path, SOURCE) as model:
        with pytest.raises(
            ZmqTritonError,
            match=r"table.'x': Input should be a valid integer, got a text of 1 letter",
        ):
            ask(model, {"person": PERSON, "table": {"x": "a"}})
        with pytest.raises(ZmqTritonError, match=r"person.name: Field required"):
            ask(model, {"person": {}, "table": {}})


BOTH = """
from typing import Dict, List
from zmqtriton import Image, model

@model
def caption(count: int, table: Dict[str, int], image: Image, tags: List[str] = []) -> int:
    return count
"""
IN_BATCH = """
from typing import Dict, List
from zmqtriton import Image, model

@model(batch=4)
def caption(
    count: List[int], table: List[Dict[str, int]], image: Image, tags: str = ""
) -> List[int]:
    return count
"""


@pytest.mark.parametrize("source", [BOTH, IN_BATCH])
def test_errors_of_the_server_and_of_the_function_are_told_together(
    tmp_path: Path, source: str
) -> None:
    with loaded(tmp_path, source) as model:
        with pytest.raises(ZmqTritonError) as caught:
            ask(model, {"count": "a", "table": {"b": "c"}, "image": 1, "tags": [1], "more": 2})
        with pytest.raises(ZmqTritonError) as missing:
            ask(model, {"table": {"b": "c"}, "image": ""})
        with pytest.raises(MismatchError, match=r"count: .*\ntable: .*\nimage: .* got nothing$"):
            ask(model, {})

    lines = caught.value.text.split("\n")
    places = [line.partition(": ")[0] for line in lines]
    assert ["count", "image", "tags", "'more'", "table.'b'"] == places
    assert "count: expected int, got a text of 1 letter" == lines[0]
    assert ["count: expected int, got nothing", "table.'b': Input"] == [
        line[:32] if n == 0 else line[:16] for n, line in enumerate(missing.value.text.split("\n"))
    ]


def test_no_large_array_is_sent_for_a_wrong_one(tmp_path: Path) -> None:
    source = BOTH.replace("import Image", "import Array, Image").replace(
        "count: int", 'count: Array["FP32", 512, 512]'
    )
    with (
        loaded(tmp_path, source.replace("-> int", "-> Array['FP32', 512, 512]")) as model,
        pytest.raises(MismatchError, match=r"^count: expected array of FP32") as caught,
    ):
        ask(model, {"count": 1, "table": {"b": "c"}, "image": ""})

    assert [] == caught.value.more


LONG = """
from typing import Dict, List
from zmqtriton import model

@model
def caption(rows: List[Dict[str, int]]) -> int:
    return sum(row["a"] for row in rows)
"""


@pytest.mark.slow
def test_a_long_list_is_read_in_pieces_with_the_places_of_the_whole(tmp_path: Path) -> None:
    rows: list[Any] = [{"a": 1}] * 20_000
    with loaded(tmp_path, LONG) as model:
        assert {"output": 20_000} == ask(model, {"rows": rows})
        assert {"output": 0} == ask(model, {"rows": []})
        rows[19_000], rows[19_001] = {"a": "b"}, 3
        with pytest.raises(ZmqTritonError) as caught:
            ask(model, {"rows": rows})

    places = [line.partition(": ")[0] for line in caught.value.text.split("\n")]
    assert ["rows.19000.'a'", "rows.19001"] == places


@pytest.mark.slow
def test_too_many_errors_are_counted(tmp_path: Path) -> None:
    source = LONG.replace("List[Dict[str, int]]", "Dict[str, List[int]]")
    with loaded(tmp_path, source) as model:
        with pytest.raises(ZmqTritonError, match="rows: 10001 values are wrong"):
            ask(model, {"rows": {"a": ["b"] * 10_001}})
        with pytest.raises(ZmqTritonError, match=r"rows.'a'.0: .*\n(.*\n)*9980 more errors$"):
            ask(model, {"rows": {"a": ["b"] * 10_000}})


def test_names_of_clients_are_quoted_in_one_line(tmp_path: Path) -> None:
    with loaded(tmp_path, SOURCE) as model, pytest.raises(ZmqTritonError) as caught:
        ask(model, {"person": PERSON, "table": {"it's\na": "b", "c" * 100: 1.5}})

    first, second = caught.value.text.split("\n")
    assert first.startswith("table.'it\u2019s a': Input should be a valid integer")
    assert second.startswith(f"table.'{'c' * 77}...': ")


PYDANTIC = """
from typing import List
from pydantic import BaseModel, Field
from zmqtriton import model

class Order(BaseModel):
    count: int = Field(ge=1)

@model(batch=4)
def caption(order: List[Order], by: str = "x") -> List[Order]:
    return [Order(count=each.count + 1) for each in order]
"""


def test_a_model_of_pydantic_checks_itself(tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    with loaded(tmp_path, PYDANTIC) as model:
        assert {"output": {"count": 3}} == ask(model, {"order": {"count": 2}})
        with pytest.raises(ZmqTritonError, match=r"order.count: Input should be greater"):
            ask(model, {"order": {"count": 0}})
        interface = interface_of(model.config)

    assert interface is not None
    assert 1 == interface.input["properties"]["order"]["properties"]["count"]["minimum"]


MEDIA = """
import os
from typing import List
import numpy as np
from zmqtriton import Audio, File, Image, model

@model(batch=4)
def caption(image: List[Image], sound: List[Audio], file: List[File]) -> List[Audio]:
    sizes = [os.path.getsize(each.path) for each in file]
    assert [each.data for each in image] == [b"picture"] * len(image)
    return [Audio.of(each.samples * size / 10, each.rate) for each, size in zip(sound, sizes)]
"""


def test_files_are_bytes_in_every_form(tmp_path: Path) -> None:
    sound = Audio.of(np.array([[0.5, -1.0], [1.0, 0.0]]), 8000)
    parts = {"image": b"picture", "sound": sound.data, "file": b"12345"}
    form = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="%s"; filename="a"\r\n\r\n%s\r\n'
        % (name.encode(), data)
        for name, data in parts.items()
    )
    texts = {name: base64.b64encode(data).decode() for name, data in parts.items()}
    with loaded(tmp_path, MEDIA) as model:
        answers = [
            ask(model, form + b"--x--\r\n", "multipart/form-data; boundary=x"),
            ask(model, {**texts, "image": f"data:image/png;base64,{texts['image']}"}),
        ]
        tensors = {name: np.array([[data]], object) for name, data in parts.items()}
        plain = model.infer(tensors)["output"][0, 0]
        with pytest.raises(MismatchError, match="image: expected Image in base64, got other text"):
            ask(model, {**texts, "image": "cat.jpg"})

    half = Audio(plain)
    assert 8000 == half.rate
    assert np.allclose([[0.25, -0.5], [0.5, 0.0]], half.samples, atol=1e-4)
    url = f"data:audio/wav;base64,{base64.b64encode(plain).decode()}"
    assert [{"output": url}] * 2 == answers


PICTURE = """
import numpy as np
from zmqtriton import Image, model

@model
def caption(image: Image) -> Image:
    return Image.of(255 - np.asarray(image))
"""


def test_a_picture_is_an_array_where_pillow_is(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    from zmqtriton_extras.functions.backend.media import Image

    picture = Image.of(np.zeros((2, 2, 3), np.uint8))
    with loaded(tmp_path, PICTURE) as model:
        output = model.infer(image=np.array([picture.data], object))["output"][0]

    assert (np.asarray(Image(output)) == 255).all()
