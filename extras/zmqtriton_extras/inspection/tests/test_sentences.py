"""Each sentence of advice of these explanations has been followed, or stands here with a reason."""

from __future__ import annotations

from pathlib import Path

from tests.standard.tools.advice.sentences import Sentence, sentences
from tests.support.needs import file_of
from zmqtriton_extras.inspection.tests.advice.faults import FAULTS

_FOLDER = Path(__file__).parents[1] / "explaining"
_OWN = "extras/inspection/system/"
#: Advice that no test follows, by its first words: why not.
UNFOLLOWED: dict[str, str] = {
    "The GPU takes the time": "needs a GPU",
    "It goes on after `continue`": "says what an operator does who debugs",
}
#: Advice that a test elsewhere follows, by its first words, and that test.
ELSEWHERE = {
    "Requests with and without": f"{_OWN}test_small_batches.py"
    "::test_optional_inputs_part_batches_until_all_send_them",
    "Set the parameter BATCH_LIKE": f"{_OWN}test_small_batches.py"
    "::test_padding_is_told_and_likeness_saves_some",
    "Raise MAX_STREAMS in config.pbtxt": "system/scheduling/test_streams.py"
    "::test_explain_says_that_requests_wait_for_a_stream_and_its_command_helps",
    "They wait for a stream to end": "system/scheduling/test_streams.py"
    "::test_explain_says_that_requests_wait_for_a_stream_and_its_command_helps",
}


def is_among(sentence: Sentence, beginnings: set[str]) -> bool:
    return any(sentence.begins_like(beginning) for beginning in beginnings)


def followed() -> set[str]:
    return {fault.advice for fault in FAULTS.values() if fault.advice} | ELSEWHERE.keys()


def test_each_sentence_of_advice_is_followed() -> None:
    beginnings = followed() | UNFOLLOWED.keys()

    assert [] == [
        f"{one.place}: {one.text}" for one in sentences(_FOLDER) if not is_among(one, beginnings)
    ]


def test_those_that_follow_it_elsewhere_are_there() -> None:
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in file_of(file).read_text("utf-8"), place


def test_none_stands_here_that_is_gone() -> None:
    assert [] == [
        beginning
        for beginning in UNFOLLOWED
        if not any(one.begins_like(beginning) for one in sentences(_FOLDER))
    ]
