"""Explanations of routes that raise, or are not served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.diagnosis.explaining.test_findings import READY, first, raised, unavailable
from zmqtriton.diagnosis.facts.served import Facts
from zmqtriton.diagnosis.rules.served import find_all
from zmqtriton_extras.routes import explaining
from zmqtriton_extras.routes.explaining import Routes


def routes(path: str = "", log: Any = ()) -> list[tuple[Any, Any]]:
    return [(explaining, Routes(path, log))]


ROUTE = """POST /ocr of m: Traceback (most recent call last):
  File "/s/zmqtriton_extras/routes/backend/model.py", line 98, in _serve
    await task
  File "/models/m/1/routes.py", line 4, in ocr
    return load(request)
  File "/lib/python3/site-packages/imaging.py", line 8, in load
    raise ValueError
ValueError: no picture
"""


def test_routes_that_raise_are_told_by_their_own_line() -> None:
    lines = [{"text": ROUTE.replace("\n", end), "time_s": 40.0} for end in ("\n", "\\n")]
    other = {"text": ROUTE.replace("POST /ocr", "GET /pages").replace("no picture", "no page")}
    entries = [READY, {**READY, "name": "m.routes"}]
    facts = Facts(
        "m", index=entries, of_add_ons=routes(log=[*lines, {**other, "time_s": 50.0}]), now_s=60.0
    )

    ocr, pages, *rest = find_all(facts)

    text = "its route POST /ocr has failed 2 times, the last 20s ago: it raises ValueError: no "
    assert f"{text}picture (routes.py, line 4, in ocr)" == ocr.text
    assert "its route GET /pages has failed 1 time, the last 10s ago: it raises" in pages.text
    assert pages.commands == ("zmqtriton-ctl logs m.routes",)
    assert not [one for one in rest if "nothing is wrong" in one.text]
    past = replace(facts, now_s=5000.0)
    assert "has failed" in first(past).text
    assert "nothing is wrong" in first(replace(past, is_overview=True)).text


def test_routes_that_are_not_served_are_told_with_their_model() -> None:
    routed = unavailable(raised("TritonModelException", "ROUTES_PATH '/v2' is taken"), "m.routes")

    findings = find_all(Facts("m", index=[READY, routed], of_add_ons=routes()))
    served = find_all(Facts("m", index=[READY], of_add_ons=routes("/api/m")))

    assert list(findings[0].commands) == ["zmqtriton-ctl explain m.routes"]
    assert "its routes are not served: " in findings[0].text
    assert "ROUTES_PATH '/v2' is taken" in findings[0].text
    assert served[-1].text == "its routes are served at /api/m"
