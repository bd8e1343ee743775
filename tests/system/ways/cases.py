"""Contents, valid and invalid: each differs from a plain request in one thing."""

from __future__ import annotations

import struct

from tests.system.ways.contents import FLOATS, PLAIN, TEXTS, Content, Input, floats, texts

PAIRS = Input("PAIRS", "INT64", (2, 2), struct.pack("<4q", 1, -2, 2**62, 0))
HALVES = Input("HALVES", "FP16", (3,), struct.pack("<3e", 0.5, 2, -1))
FLAGS = Input("FLAGS", "BOOL", (2,), b"\1\0")
EVERY = (FLOATS, TEXTS, PAIRS, HALVES, FLAGS)
#: A model that takes batches of up to four.
BATCHED = "mirror_batched"
#: A model that needs both of its inputs.
STRICT = "add_sub"
NUMBERS = struct.pack("<16f", *range(16))


def _text(*values: bytes) -> Input:
    return Input("TEXTS", "BYTES", (len(values),), texts(*values))


def _row(number: int) -> Input:
    return Input(f"INPUT{number}", "FP32", (1, 16), NUMBERS)


def _batch(*shape: int, count: int) -> Content:
    return Content((Input("FLOATS", "FP32", shape, bytes(4 * count)),), BATCHED)


def _with(*inputs: Input) -> Content:
    return PLAIN._replace(inputs=inputs)


def _named(name: str, value: bool | float | str) -> Content:
    return PLAIN._replace(parameters=((name, value),))


TENSORS = {
    "one": _with(FLOATS),
    "another one": _with(PAIRS),
    "another order": _with(TEXTS, FLOATS),
    "every": _with(*EVERY),
    "none": _with(),
    "empty": _with(floats(0)),
    "empty pairs": _with(PAIRS._replace(shape=(0, 2), data=b"")),
    "no strings": _with(_text()),
    "an empty string": _with(_text(b"")),
    "strings of all kinds": _with(_text(b"", "grün".encode(), b"\0", b"a" * 300)),
    "no UTF-8": _with(_text(b"\xff\xfe", b"x")),
    "large": _with(floats(20_000)),
    "larger": _with(floats(300_000)),
    "large strings": _with(_text(b"a" * 70_000, b"b")),
    "large and small": _with(floats(20_000), TEXTS),
    "other values": _with(FLOATS._replace(data=bytes(8)), TEXTS),
    "another shape": _with(floats(3), TEXTS),
    "not a number": _with(Input("FLOATS", "FP32", (1,), b"\0\0\xc0\x7f")),
    "infinity": _with(Input("FLOATS", "FP32", (1,), b"\0\0\x80\x7f")),
    "BF16": Content((Input("INPUT0", "BF16", (2,), b"\x80\x3f\0\0"),), "brains"),
    "BF16 that is empty": Content((Input("INPUT0", "BF16", (0,), b""),), "brains"),
    "a batch of one": _batch(1, 2, count=2),
    "a batch of four": _batch(4, 2, count=8),
    "a batch of none": _batch(0, 2, count=0),
    "rows of nothing": _batch(2, 0, count=0),
}
WRONG_TENSORS = {
    "a batch of five": _batch(5, 2, count=10),
    "a batch without rows": _batch(2, count=2),
    "a batch without a shape": _batch(count=1),
    "batches that differ": Content(
        (FLOATS._replace(shape=(1, 2)), PAIRS._replace(shape=(2, 1, 2))), BATCHED
    ),
    "another type": _with(FLOATS._replace(datatype="INT32")),
    "another type of another size": _with(Input("FLOATS", "FP64", (1,), bytes(8))),
    "numbers for strings": _with(Input("TEXTS", "FP32", (1,), bytes(4))),
    "an unknown type": _with(FLOATS._replace(datatype="FP33")),
    "a type in small letters": _with(FLOATS._replace(datatype="fp32")),
    "no type": _with(FLOATS._replace(datatype="")),
    "one dimension more": _with(FLOATS._replace(shape=(1, 2))),
    "no dimension": _with(Input("FLOATS", "FP32", (), bytes(4))),
    "another dimension": _with(Input("PAIRS", "INT64", (2, 3), bytes(48))),
    "too few bytes": _with(FLOATS._replace(data=bytes(7))),
    "too many bytes": _with(FLOATS._replace(data=bytes(12))),
    "no bytes": _with(FLOATS._replace(data=b"")),
    "a shape beyond all": _with(Input("FLOATS", "FP32", (2**62,), b"")),
    "a product beyond all": _with(Input("PAIRS", "INT64", (2**62, 2), b"")),
    "too few strings": _with(TEXTS._replace(data=texts(b"one"))),
    "too many strings": _with(TEXTS._replace(data=texts(b"1", b"2", b"3"))),
    "half a length": _with(TEXTS._replace(data=texts(b"one") + b"\1")),
    "half a string": _with(TEXTS._replace(data=texts(b"one") + b"\5\0\0\0tw")),
    "an unknown input": _with(FLOATS._replace(name="MORE")),
    "one input more": _with(*EVERY, FLOATS._replace(name="MORE")),
    "an input twice": _with(FLOATS, FLOATS),
    "a missing input": Content((_row(0),), STRICT),
    "all inputs missing": Content((), STRICT),
    "the same for another input": Content((_row(0), _row(0)._replace(name="X")), STRICT),
}
WISHES = {
    "one output": PLAIN._replace(outputs=("FLOATS_BACK",)),
    "two outputs": PLAIN._replace(outputs=("TEXTS_BACK", "FLOATS_BACK")),
    "two outputs in another order": PLAIN._replace(outputs=("FLOATS_BACK", "TEXTS_BACK")),
    "an output that is not given": PLAIN._replace(outputs=("PAIRS_BACK", "SEEN")),
    "an unknown output": PLAIN._replace(outputs=("SEEN", "MORE")),
    "an output twice": PLAIN._replace(outputs=("SEEN", "SEEN")),
    "no id": PLAIN._replace(id=""),
    "another id": PLAIN._replace(id="other"),
    "an id beyond ASCII": PLAIN._replace(id="größer\n"),
    "a long id": PLAIN._replace(id="x" * 10_000),
    "one": _named("p", 1),
    "true": _named("p", True),
    "a float": _named("p", 1.0),
    "a text": _named("p", "1"),
    "zero": _named("p", 0),
    "false": _named("p", False),
    "an empty text": _named("p", ""),
    "a negative number": _named("p", -(2**63)),
    "a large number": _named("p", 2**63 - 1),
    "a name beyond ASCII": _named("größe", "ü"),
    "a long name": _named("p" * 1025, 1),
    "a reserved name": _named("triton_p", 1),
    "two parameters": PLAIN._replace(parameters=(("a", 1), ("b", 2))),
    "a failure": _named("fail", "as asked"),
    "a priority": PLAIN._replace(priority=1),
    "a timeout": PLAIN._replace(timeout_us=60_000_000),
    "another timeout": PLAIN._replace(timeout_us=90_000_000),
    "a sequence": PLAIN._replace(sequence=7, is_start=True),
    "the end of a sequence": PLAIN._replace(sequence=7, is_end=True),
    "a sequence with a name": PLAIN._replace(sequence="seven", is_start=True, is_end=True),
    "a large sequence": PLAIN._replace(sequence=2**62),
    "a name that is too long for a sequence": PLAIN._replace(sequence="x" * 129),
}
TARGETS = {
    "version 1": PLAIN._replace(version="1"),
    "version 2": PLAIN._replace(version="2"),
    "version 3": PLAIN._replace(version="3"),
    "version 0": PLAIN._replace(version="0"),
    "version 01": PLAIN._replace(version="01"),
    "a version that is no number": PLAIN._replace(version="new"),
    "an unknown model": PLAIN._replace(model="nobody"),
    "an unknown version of an unknown model": PLAIN._replace(model="nobody", version="1"),
    "a name like a model's": PLAIN._replace(model="mirro"),
    "a model that is not loaded": PLAIN._replace(model="idle"),
    "its version": PLAIN._replace(model="idle", version="1"),
    "a decoupled model": PLAIN._replace(model="mirror_decoupled"),
    "a sequence's model without one": PLAIN._replace(model="mirror_sequences"),
    "an unknown sequence": PLAIN._replace(model="mirror_sequences", sequence=99),
    "a whole sequence": PLAIN._replace(
        model="mirror_sequences", sequence=98, is_start=True, is_end=True
    ),
    "a model with a cache": PLAIN._replace(model="mirror_cached"),
    "an ensemble": Content((FLOATS,), "mirror_twice", id="e"),
    "an ensemble's unknown output": Content((FLOATS,), "mirror_twice", outputs=("MORE",)),
    "an ensemble's wrong input": Content((TEXTS,), "mirror_twice"),
    "an ensemble that fails": Content((FLOATS,), "mirror_twice", parameters=(("fail", "in it"),)),
}
CASES = {
    f"{kind}: {name}": content
    for kind, contents in {
        "tensors": TENSORS,
        "wrong tensors": WRONG_TENSORS,
        "wishes": WISHES,
        "targets": TARGETS,
    }.items()
    for name, content in contents.items()
} | {"plain": PLAIN}
