"""`zmqtriton simulate`: what it reads, what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zmqtriton.main import main

CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
dynamic_batching { }
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "m"
    (directory / "1").mkdir(parents=True)
    (directory / "1" / "model.py").touch()
    (directory / "config.pbtxt").write_text(CONFIG)
    return directory


def simulated(model: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["simulate", str(model), "--json", *words]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refusal(model: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["simulate", str(model), *words]) == 1
    return capsys.readouterr().err


def test_each_setting_has_its_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    delays = "dynamic_batching.max_queue_delay_microseconds=0,20000"
    words = ["--execution=10+1", "--rate=50", "--pattern=even", "--requests=100", "--set", delays]

    assert main(["simulate", str(model), *words]) == 0

    title, *lines, _ = capsys.readouterr().out.splitlines()
    assert title.split()[0] == "setting"
    assert [line.split()[0] for line in lines] == [
        "max_queue_delay_microseconds=0",
        "max_queue_delay_microseconds=20000",
    ]
    # One every 20 ms, executed for 11: alone at once, or two of them when the first has waited.
    p50 = title.replace(" ms", "").split().index("p50")
    assert [line.split()[p50] for line in lines] == ["11.0", "12.0"]


@pytest.mark.slow
def test_overload_is_marked_and_the_best_setting_named(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = "--set=instance_group.count=1,3,2"
    load = ["--rate=200", "--pattern=even", "--requests=200", "--batch=8"]

    assert main(["simulate", str(model), "--execution=10", *load, counts]) == 0
    _, *lines, best = capsys.readouterr().out.splitlines()
    assert main(["simulate", str(model), "--execution=50", *load, counts]) == 0
    *_, nothing = capsys.readouterr().out.splitlines()
    rows = simulated(model, capsys, "--execution=10", "--clients=4", *load[2:], counts)

    assert [line.split()[-1] for line in lines] == ["overload", "0", "best"]
    assert best == "Best: count=2 (lowest p99 without overload)"
    assert (
        nothing
        == "Overload with each of these settings: requests come faster than they are answered."
    )
    assert [row["best"] for row in rows] == [False, True, False]
    assert not any(row["overload"] for row in rows)


def test_more_instances_and_other_lists_can_be_tried(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = simulated(
        model,
        capsys,
        "--execution=10",
        "--clients=8",
        "--requests=400",
        "--set=instance_group.count=1,2",
        "--set=dynamic_batching.preferred_batch_size=[4],[2,8]",
        "--set=dynamic_batching.max_queue_delay_microseconds=1000",
    )

    assert [row["setting"].removesuffix(" max_queue_delay_microseconds=1000") for row in rows] == [
        "count=1 preferred_batch_size=[4]",
        "count=1 preferred_batch_size=[2, 8]",
        "count=2 preferred_batch_size=[4]",
        "count=2 preferred_batch_size=[2, 8]",
    ]
    assert sum(int(size) * count for size, count in rows[0]["batches"].items()) == 400
    assert rows[2]["inferences_per_s"] > 1.5 * rows[0]["inferences_per_s"]


def test_batch_sizes_that_were_filled_in_follow_the_largest_one(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--execution=10", "--clients=17", "--requests=80"]

    rows = simulated(model, capsys, *load, "--set=max_batch_size=1,2,16")

    assert [max(map(int, row["batches"])) for row in rows] == [1, 2, 16]


def test_costs_are_learned_from_the_statistics_of_a_server(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = [
        {"batch_size": size, "compute_infer": {"count": 3, "ns": 3 * took * 1_000_000}}
        for size, took in ((1, 6), (3, 8))
    ]
    statistics = tmp_path / "stats.json"
    statistics.write_text(json.dumps({"model_stats": [{"batch_stats": batches}]}))

    words = [f"--measured={statistics}", "--rate=10", "--pattern=even", "--requests=5"]
    [row] = simulated(model, capsys, *words)

    assert row["p50_ms"] == 6.0


def test_sequences_are_simulated_with_clients(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CONFIG.replace("dynamic_batching { }", "sequence_batching { oldest { } }")
    (model / "config.pbtxt").write_text(text)

    [row] = simulated(model, capsys, "--execution=1", "--clients=4", "--requests=40")

    assert row["refused"] == 0
    said = refusal(model, capsys, "--execution=1", "--rate=4")
    assert (
        said == "error: sequence models need --clients (each client sends one request at a time)\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--execution=soon", "--rate=1"],
            "--execution: 'soon' must be milliseconds, such as 8 or 8+0.9",
        ),
        (["--execution=-1", "--rate=1"], "--execution: '-1' ms must be"),
        (["--execution=1", "--rate=0"], "--rate must be more than 0"),
        (["--execution=1", "--clients=0"], "--clients must be 1 or more"),
        (["--execution=1", "--rate=1", "--requests=0"], "--requests, --batch and --sequence"),
        (["--execution=1", "--rate=1", "--pattern=burst"], "'burst' must be even"),
        (["--execution=1", "--rate=1", "--set=nothing"], "'nothing' must be FIELD.FIELD"),
        (["--execution=1", "--rate=1", "--set=a.b=1"], "a: Cannot find field."),
        (["--execution=1", "--rate=1", "--set=max_batch_size=-1"], "must be non-negative"),
        (["--execution=1", "--rate=1", "--set=name.b=1"], "has no field 'b'"),
        (["--execution=1", "--rate=1", "--set=instance_group.passive=true"], "no active instance"),
        (["--execution=1", "--arrivals=/nowhere"], "/nowhere"),
        (["--execution=1", "--rate=1", "--values=2"], "for a model with AFFINITY"),
        (["--measured=/nowhere", "--rate=1"], "/nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    text = refusal(model, capsys, *words)

    assert text.startswith("error: ")
    assert said in text


@pytest.mark.slow
@pytest.mark.extra("affinity")
def test_an_affinity_is_followed_and_given_up_as_its_model_says(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = 'parameters { key: "AFFINITY" value { string_value: "header:X" } }\n'
    text = CONFIG.replace("dynamic_batching { }", rule + "instance_group { count: 4 }")
    (model / "config.pbtxt").write_text(text)
    by = "parameters.AFFINITY_BUSIER_BY.string_value"
    words = ["--execution=10", "--values=5", "--requests=500", f'--set={by}="1","100"']

    calm = simulated(model, capsys, *words, "--rate=1", "--pattern=even")
    busy = simulated(model, capsys, *words, "--clients=8")

    assert [row["hits"] for row in calm] == [1.0, 1.0]
    given_up, kept = busy
    assert (given_up["hits"] < 0.9, kept["hits"]) == (True, 1.0)
    assert given_up["inferences_per_s"] > kept["inferences_per_s"]
    assert main(["simulate", str(model), *words, "--clients=8"]) == 0
    assert capsys.readouterr().out.split("\n", 1)[0].split()[-1] == "hits"
    assert [row["hits"] for row in simulated(model, capsys, "--execution=1", "--rate=1")] == [None]


def test_an_ensemble_is_left_to_its_steps(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = (
        'step { model_name: "n" input_map { key: "I" value: "IN" } '
        'output_map { key: "O" value: "OUT" } }'
    )
    text = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
    text = text.replace("dynamic_batching { }", f"ensemble_scheduling {{ {step} }}")
    (model / "config.pbtxt").write_text(text)

    assert "simulate the models of its steps" in refusal(model, capsys, "--execution=1", "--rate=1")
