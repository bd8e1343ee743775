"""Sessions of ONNX Runtime as the configuration makes them; what they answer, system tests show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import onnx_models
from zmqtriton_extras.backends.tests import summing
from zmqtriton_extras.backends.tests.served import Served

pytest.importorskip("onnxruntime")

SPINNING = "session.intra_op.allow_spinning"


def test_threads_do_not_spin_unless_the_configuration_says_so(tmp_path: Path) -> None:
    onnx_models.scaling(tmp_path / "m" / "1" / "model.onnx")
    spinning = f'parameters {{ key: "{SPINNING}" value {{ string_value: "1" }} }}'

    def entry(text: str, settings: dict[str, str] | None = None) -> str:
        session = Served(tmp_path / "m", text, settings).model._session
        return session.get_session_options().get_session_config_entry(SPINNING)

    assert (entry(""), entry(spinning)) == ("0", "1")
    assert entry("", {SPINNING: "1"}) == "1"


def test_of_a_sequence_the_file_s_inputs_are_completed_that_clients_send(tmp_path: Path) -> None:
    onnx_models.summing(tmp_path / "m" / "1" / "model.onnx")
    _, _, batching = summing.CONFIG.partition("sequence_batching")

    whole = Served(tmp_path / "m", summing.CONFIG)
    bare = Served(tmp_path / "m", f"sequence_batching{batching}")

    assert summing.answers(whole) == summing.EXPECTED
    assert (
        bare.config["max_batch_size"],
        [entry["name"] for entry in bare.config["input"]],
    ) == (4, ["VALUE"])
    assert {"TOTAL", "AFTER"} < {entry["name"] for entry in bare.config["output"]}
    assert "dynamic_batching" not in bare.config
