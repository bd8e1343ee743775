"""Profiles as files: the flame graph, speedscope's, pprof's; each read by a parser of its form."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from xml.etree import ElementTree

from zmqtriton_extras.inspection import flame_graph, formats
from zmqtriton_extras.inspection.profile import read
from zmqtriton_extras.inspection.tests.documents import FUNCTIONS, MS, answer, part

SVG = "{http://www.w3.org/2000/svg}"


def drawn(document: dict[str, object]) -> dict[str, tuple[float, int]]:
    """Return width and row of each frame, by its name."""
    root = ElementTree.fromstring(flame_graph.draw(read(document)))
    groups = [g for g in root.iter(f"{SVG}g") if g.get("class") == "frame"]
    return {
        g.attrib["data-name"]: (float(g.attrib["data-w"]), int(g.attrib["data-row"]))
        for g in groups
    }


def test_the_width_of_a_frame_is_its_time() -> None:
    frames = drawn(answer(part()))

    whole, _ = frames["prices"]
    execute, row = frames["TritonPythonModel.execute (model.py:12)"]
    svd, row_of_svd = frames["svd (linalg.py:130)"]
    # all but what waits for requests or for other work
    assert 0.001 > abs(execute / whole - 600 / (500 + 100 + 50 + 20 + 30 + 200))
    assert 0.01 > abs(svd / execute - 500 / 600)
    assert (row + 1, 2) == (row_of_svd, row - 1)
    assert "Stub._ready (loop.py:55)" not in frames


def test_a_model_cannot_write_into_the_page() -> None:
    functions = [[f"<script>&\"'\x00{name}", *rest] for name, *rest in FUNCTIONS]

    svg = flame_graph.draw(read(answer(part(functions=functions), model="<b>"))).decode()

    root = ElementTree.fromstring(svg)
    assert 1 == len(list(root.iter(f"{SVG}script")))
    assert "<b>" not in svg


def test_the_page_needs_nothing_else_and_is_for_light_and_dark() -> None:
    svg = flame_graph.draw(read(answer(part()))).decode()

    assert "prefers-color-scheme: dark" in svg
    assert 1 == svg.count("http"), "the name of SVG"


def test_an_empty_profile_is_drawn() -> None:
    ElementTree.fromstring(flame_graph.draw(read(answer(part(times=[])))))


def test_speedscope_gets_each_thread_with_its_weights() -> None:
    document = json.loads(formats.speedscope(read(answer(part()))))

    assert "https://www.speedscope.app/file-format-schema.json" == document["$schema"]
    frames = [one["name"] for one in document["shared"]["frames"]]
    main = document["profiles"][0]
    assert ("sampled", "MainThread", "nanoseconds") == (main["type"], main["name"], main["unit"])
    names = [[frames[n] for n in stack] for stack in main["samples"]]
    assert ["Stub._serve", "TritonPythonModel.execute", "svd"] == names[0]
    assert [500 * MS, 100 * MS, 50 * MS] == main["weights"]
    assert (0, 650 * MS) == (main["startValue"], main["endValue"])
    threads = {"MainThread", "watcher", "coroutine TritonPythonModel.fetch"}
    assert threads == {one["name"] for one in document["profiles"]}


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Read the fields of a message of protocol buffers."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = varint()
        value = varint()
        if tag & 7 == 2:
            yield tag >> 3, data[at : at + value]
            at += value
        else:
            yield tag >> 3, value


def all_of(data: bytes, field: int) -> list[bytes]:
    return [value for number, value in fields(data) if number == field and isinstance(value, bytes)]


def test_pprof_gets_samples_of_three_kinds() -> None:
    data = gzip.decompress(formats.pprof(read(answer(part()))))

    texts = [text.decode() for text in all_of(data, 6)]
    assert "" == texts[0]
    kinds = [dict(fields(one)) for one in all_of(data, 1)]
    assert ["samples", "cpu", "wall"] == [texts[int(kind[1])] for kind in kinds]
    first = all_of(data, 2)[0]
    values = list(_varints(all_of(first, 2)[0]))
    assert [50, 500 * MS, 500 * MS] == values
    functions = {
        int(dict(fields(one))[1]): texts[int(dict(fields(one))[2])] for one in all_of(data, 5)
    }
    lines = {int(dict(fields(one))[1]): dict(fields(all_of(one, 4)[0])) for one in all_of(data, 4)}
    places = [lines[number] for number in _varints(all_of(first, 1)[0])]
    assert ["svd", "TritonPythonModel.execute", "Stub._serve"] == [
        functions[int(place[1])] for place in places
    ]
    assert [130, 12, 5] == [place[2] for place in places]
    labels = [dict(fields(one)) for one in all_of(first, 3)]
    assert {"instance": "prices_0_0", "thread": "MainThread", "doing": "C"} == {
        texts[int(label[1])]: texts[int(label[2])] for label in labels
    }


def _varints(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
