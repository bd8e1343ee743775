"""Metrics of models, from the calls in model.py to the page that Prometheus reads."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.support import scripted
from tests.support.server import Copy, Server
from tests.support.waiting import eventually

_REFUSED = "Failed to process the request for model 'scripted_0_0', message: "
_SETUP = """
family = pb_utils.MetricFamily
C, G, H = family.COUNTER, family.GAUGE, family.HISTOGRAM
def text(call, *arguments, **named):
    try:
        return str(call(*arguments, **named))
    except pb_utils.TritonModelException as error:
        return str(error)
"""


_LOADED = ("scripted", "measuring", "mortal")
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=["scripted", "measuring", Copy("measuring", "again"), Copy("measuring", "mortal")],
        load=_LOADED,
    ),
]


def said(server: Server, expressions: list[str], before: str = "") -> list[str]:
    """Return what each comes to, or the text of its error."""
    lines = ", ".join(f"text(lambda: ({expression}))" for expression in expressions)
    script = f"{_SETUP}{before}\nimport json\nreturn [reply(json.dumps([{lines}]))]"
    return list(json.loads(scripted.generate(server, "scripted", script)))


def page(server: Server, family: str) -> list[str]:
    """Its lines on the metrics page."""
    return [
        line
        for line in server.metrics_text().splitlines()
        if re.match(rf"(# (HELP|TYPE) )?{family}\b", line)
    ]


def starts(server: Server, model: str = "measuring") -> str:
    """The value of the series that the instances of a model have in common."""
    lines = page(server, f"{model}_starts")
    return lines[-1].rpartition(" ")[2] if lines else "none"


def ask(server: Server, script: str, model: str = "measuring") -> str:
    return scripted.generate(server, model, script)


@pytest.mark.row("A91")
def test_a_family_is_found_under_its_name_and_has_one_kind(server: Server) -> None:
    errors = said(
        server,
        [
            '(lambda same: same.Metric().value())(family("one", "other words", C))',
            'family("one", "words", G)',
            'family("bad-name", "", C)',
            'family("", "", C)',
            'family("nv_inference_count", "", C)',
        ],
        'self.one = family("one", "words", C); self.m = self.one.Metric(); self.m.increment(4)',
    )

    creating = f"Error when creating MetricFamily: {_REFUSED}"
    assert [
        "4.0",
        f"{creating}Family name already exists with different type",
        f"{creating}Invalid metric name",
        f"{creating}Invalid metric name",
        f"{creating}Family name 'nv_inference_count' is one of the server's own: choose another",
    ] == errors
    assert ["# HELP one words", "# TYPE one counter", "one 4"] == page(server, "one")


@pytest.mark.row("A93")
def test_each_kind_has_its_operations(server: Server) -> None:
    errors = said(
        server,
        [
            "c.increment(1.5), c.value()",
            "c.increment(-1)",
            "c.set(1)",
            "c.observe(1)",
            "g.increment(-2), g.value()",
            "g.set(7), g.increment(0.5), g.value()",
            "g.observe(1)",
            "h.observe(1)",
            "h.increment(1)",
            "h.set(1)",
            "h.value()",
        ],
        'fs = family("kc", "", C), family("kg", "", G), family("kh", "", H)\n'
        "c, g, h = fs[0].Metric(), fs[1].Metric(), fs[2].Metric(buckets=[1, 2])",
    )

    def not_for(doing: str, kind: str, verb: str) -> str:
        kind = f"TRITONSERVER_METRIC_KIND_{kind}"
        return f"Failed to {doing} metric value: {_REFUSED}{kind} does not support {verb}"

    assert [
        "(None, 1.5)",
        f"Failed to increment metric value: {_REFUSED}TRITONSERVER_METRIC_KIND_COUNTER can only be "
        "incremented monotonically by non-negative values.",
        not_for("set", "COUNTER", "Set"),
        not_for("observe", "COUNTER", "Observe"),
        "(None, -2.0)",
        "(None, None, 7.5)",
        not_for("observe", "GAUGE", "Observe"),
        "None",
        not_for("increment", "HISTOGRAM", "Increment"),
        not_for("set", "HISTOGRAM", "Set"),
        not_for("get", "HISTOGRAM", "Value"),
    ] == errors


@pytest.mark.row("A91", "A94")
def test_the_page_has_what_models_measure_until_they_let_go(server: Server) -> None:
    said(
        server,
        ["m.observe(1)", "m.observe(3)", "m.observe(99)"],
        'self.h = family("sizes", "of \\\\ and\\nmore", H)\n'
        'self.m = m = self.h.Metric({"z": "a\\\\b", "a": "\\"\\n"}, [1, 2.5, 10])',
    )
    labels = 'a="\\"\\n",z="a\\\\b"'
    assert [
        "# HELP sizes of \\\\ and\\nmore",
        "# TYPE sizes histogram",
        f"sizes_count{{{labels}}} 3",
        f"sizes_sum{{{labels}}} 103",
        f'sizes_bucket{{{labels},le="1"}} 1',
        f'sizes_bucket{{{labels},le="2.5"}} 1',
        f'sizes_bucket{{{labels},le="10"}} 2',
        f'sizes_bucket{{{labels},le="+Inf"}} 3',
    ] == [*page(server, "sizes"), *page(server, "sizes_[a-z]+")]

    said(server, ["self.__delattr__('m')"])

    assert [] == page(server, "sizes_[a-z]+")


@pytest.mark.row("A94")
def test_two_instances_share_a_series(server: Server) -> None:
    before = int(starts(server))
    assert before >= 2
    # In initialize there is nobody to ask yet.
    assert "1.0" == ask(server, "self.at_first")

    assert f"{before + 10}.0" == ask(server, "(self.starts.increment(10), self.starts.value())[1]")
    assert f"{before + 10}" == starts(server)


@pytest.mark.skipif(
    os.environ.get("ZT_INSTANCES") == "threads", reason="all instances die with one of them"
)
@pytest.mark.row("A94")
def test_a_dead_instance_leaves_what_it_counted_to_the_others(server: Server) -> None:
    before = int(starts(server, "mortal"))
    os.kill(server.stub_pids("mortal")[0], signal.SIGKILL)

    # The one that takes its place counts its start.
    more = str(before + 1)
    eventually(lambda: starts(server, "mortal") == more, 30, "the new instance's start")


def test_what_an_instance_adds_at_its_end_is_not_lost(server: Server) -> None:
    before = int(starts(server))
    ask(server, "setattr(self, 'at_end', 50)")
    (server.repository / "measuring" / "1" / "model.py").touch()

    server.control_model("load", "measuring")

    # the two instances that take their places count their starts
    eventually(lambda: starts(server) == str(before + 52), 60, "the changes of finalize()")


@pytest.mark.row("A94")
def test_the_series_of_an_unloaded_model_go_away(server: Server) -> None:
    for verb, expected in (("load", "2"), ("unload", "none")):
        url = f"{server.url}/v2/repository/models/again/{verb}"
        urllib.request.urlopen(url, b"{}", timeout=60).close()

        eventually(lambda: starts(server, "again") == expected, 30, f"{expected} after {verb}")  # noqa: B023


def test_many_series_fit_on_the_page(server: Server, tmp_path: Path) -> None:
    said(
        server,
        ["[m.increment(1) for m in self.many] and ''"],
        'self.f = family("lots", "", C)\n'
        "self.many = [self.f.Metric({'n': 'x' * 200 + str(n)}) for n in range(9000)]",
    )

    assert 9002 == len(page(server, "lots"))
