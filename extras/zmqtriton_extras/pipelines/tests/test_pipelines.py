"""The examples of pipelines, written and run as their pages say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.examples import run_script
from tests.support.server import Server
from zmqtriton.main import main

pytestmark = pytest.mark.system

LABELS = ["across", "checkers", "down", "gradient", "noise", "spots"]


def test_a_batch_job_draws_its_picture(tmp_path: Path) -> None:
    main(["example", "batch", str(tmp_path / "batch")])
    job = tmp_path / "batch" / "job.py"

    done = subprocess.run(
        [sys.executable, "-B", job, "--rows", "48"], capture_output=True, text=True, check=True
    )

    lines = done.stdout.splitlines()
    assert len(lines) == 24
    assert "@" in lines[12]
    assert "@" not in lines[0]
    assert "48/48" in done.stderr


@pytest.mark.long(
    "extras/pipelines/test_pipelines.py::test_sentences_are_told_by_the_ensemble_and_by_the_model"
)
def test_patterns_of_images_are_told_by_the_ensemble_and_by_the_model(tmp_path: Path) -> None:
    main(["example", "image", str(tmp_path / "image")])
    run_script(tmp_path / "image" / "make.py")
    models = sorted((tmp_path / "image" / "models").iterdir())

    with Server(tmp_path / "server", models=models, frontends=()) as server:
        printed = run_script(
            tmp_path / "image" / "client.py", "--url", f"127.0.0.1:{server.http_port}"
        )

    # The client compares what the two answer.
    rows = dict(line.split(": ") for line in printed.splitlines())
    assert {f"{label}.png": label for label in LABELS} == {
        name: text.split()[0] for name, text in rows.items()
    }


@pytest.mark.smoke
def test_sentences_are_told_by_the_ensemble_and_by_the_model(tmp_path: Path) -> None:
    main(["example", "sentiment", str(tmp_path / "sentiment")])
    run_script(tmp_path / "sentiment" / "make.py")
    models = sorted((tmp_path / "sentiment" / "models").iterdir())
    texts = ["The waiter was not rude", "This book was not good", "i love this place", "dull"]

    with Server(tmp_path / "server", models=models, frontends=()) as server:
        url = f"127.0.0.1:{server.http_port}"
        printed = run_script(tmp_path / "sentiment" / "client.py", "--url", url, *texts)

    assert ["kind", "unkind", "kind", "unkind"] == [
        line.split()[0] for line in printed.splitlines()
    ]
