"""The drawings that explain the server: up to date, embedded, and true."""

from __future__ import annotations

import json
import re

import pytest

from tests.repo.test_doc_examples import all_pages
from tests.support.needs import ROOT
from tools import pictures


def test_they_are_up_to_date() -> None:
    drawn = pictures.pictures()

    written = {name: (pictures.GUIDES / name).read_text("utf-8") for name in drawn}
    assert drawn == written, "run: python -m tools.pictures"


@pytest.mark.parametrize("name", pictures.pictures())
def test_each_is_in_a_page_with_a_text_for_those_who_do_not_see_it(name: str) -> None:
    texts = [(ROOT / page).read_text("utf-8") for page in all_pages()]

    alternatives = re.findall(rf"^!\[(.*)\]\(\S*/?{name}\)$", "\n".join(texts), re.MULTILINE)
    assert alternatives
    assert 40 < min(map(len, alternatives))


@pytest.mark.extra("bench")
@pytest.mark.parametrize(("delay_ms", "batches"), pictures.BATCHES.items())
def test_the_schedulers_make_the_batches_of_the_picture(
    delay_ms: int, batches: tuple[tuple[int, int], ...]
) -> None:
    from zmqtriton_extras.bench.simulation.run import MS, Arrival, Cost, SimulationRun

    batching = {"max_queue_delay_microseconds": 1000 * delay_ms}
    config = {"name": "m", "max_batch_size": pictures.MAX_BATCH, "dynamic_batching": batching}
    cost = Cost(pictures.BASE_MS, pictures.EACH_MS)
    run = SimulationRun(json.dumps(config), ["m_0"], cost, seed=1)
    outcome = run.open(Arrival(at * MS) for at in pictures.ARRIVALS_MS)

    assert [ms * MS for ms in pictures.latencies_ms(batches)] == outcome.latencies_ns


@pytest.mark.extra("jobs")
def test_the_picture_of_jobs_has_their_states() -> None:
    from zmqtriton_extras.jobs.routes import DESCRIPTIONS

    states = DESCRIPTIONS.schemas["Job"]["properties"]["state"]["enum"]
    drawn = re.findall('text-anchor="middle">(.*)</text>', pictures.pictures()["job-states.svg"])
    assert [] == [state for state in states if state not in drawn]
