"""Each sentence of advice of explain and doctor has been followed, or stands here with a reason."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.standard.tools.advice.model_faults import FAULTS
from tests.standard.tools.advice.sentences import Sentence, sentences

#: Tests that find advice by its first words, and follow it.
_SYSTEM = Path(__file__).parents[1] / "system"
_FOLLOWING = [_SYSTEM / f"test_broken_{kind}.py" for kind in ("servers", "machines")]
_GPU = "needs a GPU"
_MEMORY = "needs a machine or a control group that runs out of memory"
_BUSY = "a busy machine, which no test can make without disturbing others"
_PYTHON = "needs another Python or installation than the one that tests"
_CORES = "needs a machine with more cores than one that tests"
_SHORT = "tells of a state that passes by itself, and of nothing to do"
#: Advice that no test follows, by its first words: why not.
UNFOLLOWED: dict[str, str] = {
    # -- explain
    "The log may say more.": "only of a cause that is not known",
    "Use fewer instances or smaller batches, or unload another model of that GPU.": _GPU,
    "A kernel uses memory that is not its own, or the GPU is at fault.": _GPU,
    "Unload another model of that GPU, or raise the limit.": _GPU,
    "Give it more memory, use fewer instances, or unload other models": _MEMORY,
    "Nothing is loaded any more.": _SHORT,
    "Its file system may hang: the server asks again": "needs a file system that hangs",
    "Clients keep a region as long as it is registered.": "for authors of clients",
    "A process did work for which others had to wait": "a defect, to be reported",
    "The first load makes the environment; later ones find it.": _SHORT,
    "The log says what it did.": "of a process that has ended, which nobody lists",
    "Load it again.": "the server loads it again by itself, mostly before anybody asks",
    "On a busy machine, ask again. It is replaced if it dies": _BUSY,
    "Where that hangs, a restart begins anew.": _SHORT,
    "Remove it. `zmqtriton.testing.load_model` runs": "of a server without the extra inspection",
    "More instances make the queue shorter; a lower --max-requests refuses earlier.": _MEMORY,
    "Replace the instances, so that numeric libraries start": _CORES,
    "Without MPS, the processes on a GPU take turns.": _GPU,
    "Install the system's package that has it": "needs a machine without a library of the system",
    # -- doctor
    "Have fewer instances (`instance_group.count`), or a lower": _CORES,
    "Look after that file system; a server goes on": "needs a file system that hangs",
    "Its log says why, in a line with `the certificate of`.": _SHORT,
    "Nothing is said of that here.": "of whatever cannot be read, which nobody knows ahead",
    "Requests that touch it wait for the disk.": "needs swap",
    "If that stays so, a file system or a GPU hangs": "needs a driver that hangs",
    "Models of KIND_GPU are refused. Driver and library": _GPU,
    "CUDA may need more for copies to the GPU.": _GPU,
    "It is needed where tensors stay on the GPU": _GPU,
    "Add the users of the server and its models to the groups video": _GPU,
    "The last lines of its log say why. Where one model": "needs a systemd that is process 1",
}
#: Shorter texts are no advice.
_LEAST = 12


@cache
def followed() -> set[str]:
    """Return the beginnings of all advice that tests have followed."""
    trees = [ast.parse(path.read_text("utf-8")) for path in _FOLLOWING]
    texts = {
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {text for text in texts if len(text) >= _LEAST} | {
        fault.advice for fault in FAULTS.values() if fault.advice
    }


def is_among(sentence: Sentence, beginnings: set[str]) -> bool:
    return any(sentence.begins_like(beginning) for beginning in beginnings)


@pytest.mark.slow
def test_each_sentence_of_advice_is_followed() -> None:
    beginnings = followed() | UNFOLLOWED.keys()

    assert [] == [
        f"{one.place}: {one.text}" for one in sentences() if not is_among(one, beginnings)
    ]


@pytest.mark.slow
def test_none_stands_here_that_is_followed_or_gone() -> None:
    gone = [
        beginning
        for beginning in UNFOLLOWED
        if not any(one.begins_like(beginning) for one in sentences())
    ]
    twice = [
        one.text
        for one in sentences()
        if is_among(one, followed()) and is_among(one, {*UNFOLLOWED})
    ]

    assert ([], []) == (gone, twice)


def test_the_collection_finds_what_tables_choices_and_names_have() -> None:
    texts = {one.text for one in sentences()}

    assert len(texts) > 150
    for beginning in (
        "Correct the model, or what it needs there.",  # a row of a table
        "Each connection, instance and region",  # of a function that was chosen
        "Loads and starts take longer",  # a table that is unpacked
    ):
        assert any(text.startswith(beginning) for text in texts), beginning
