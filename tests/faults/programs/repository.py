"""Programs as a repository of models."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.faults.programs.drawing import Program
from tests.faults.programs.oracle import SERVED
from tests.support.scripted import string_parameter
from tests.support.server import Server

_FILES = ("arrays.py", "interpreter.py", "model.py")
#: Seconds that a sequence may be idle.
_IDLE_S = 20
_TYPE = "data_type: TYPE_UINT64"


def write(server: Server, program: Program, looks: int = 1) -> None:
    code = "" if program.kind == "ensemble" else "pass"
    directory = server.write_model(program.name, config_of(program), code)
    if program.kind != "ensemble":
        fill(directory / "1", program, server.scratch, looks)


def fill(directory: Path, program: Program, scratch: Path, looks: int = 1) -> None:
    """Write the code of a model, and its program."""
    for name in (*_FILES, "routes.py") if program.has_route else _FILES:
        shutil.copy(SERVED / name, directory / name)
    (directory / "program.json").write_text(json.dumps(described(program, scratch, looks)))


def described(program: Program, scratch: Path, looks: int = 1) -> dict[str, Any]:
    """Return a program as its model reads it, with the looks that it takes at each request."""
    return {**asdict(program), "scratch": str(scratch), "looks": looks}


def bound_config(program: Program) -> dict[str, Any]:
    """Return the configuration of a model of the client's own process."""

    def tensors(*named: tuple[str, int]) -> list[dict[str, Any]]:
        return [{"name": n, "data_type": "TYPE_UINT64", "dims": [size]} for n, size in named]

    inputs = tensors(("CALL", 1), *((f"IN{n}", -1) for n in range(program.inputs)))
    inputs[0]["optional"] = True
    return {
        "input": inputs,
        "output": tensors(*((f"OUT{n}", -1) for n in range(program.outputs))),
        "model_transaction_policy": {"decoupled": program.is_streamed},
        **({"response_cache": {"enable": True}} if program.is_cached else {}),
    }


def config_of(program: Program) -> str:
    optional = "optional: true " if program.kind == "model" else ""
    inputs = [f'{{ name: "CALL" {_TYPE} dims: [ 1 ] {optional}}}']
    inputs += [f'{{ name: "IN{n}" {_TYPE} dims: [ -1 ] }}' for n in range(program.inputs)]
    outputs = [f'{{ name: "OUT{n}" {_TYPE} dims: [ -1 ] }}' for n in range(program.outputs)]
    tensors = f"input [ {', '.join(inputs)} ]\noutput [ {', '.join(outputs)} ]\n"
    if program.kind == "ensemble":
        return f'platform: "ensemble"\n{tensors}{_steps_of(program)}'
    lines = [f'backend: "python"\n{tensors}']
    lines.append(f"instance_group [ {{ count: {program.count} kind: KIND_CPU }} ]\n")
    if program.is_streamed:
        lines.append("model_transaction_policy { decoupled: true }\n")
    if program.is_cached:
        lines.append("response_cache { enable: true }\n")
    if program.instances != "processes":
        lines.append(string_parameter("INSTANCES", program.instances))
    if program.state:
        strategy = "oldest { max_candidate_sequences: 16 }" if program.count > 1 else "direct { }"
        lines.append(
            f"sequence_batching {{ max_sequence_idle_microseconds: {_IDLE_S}000000 {strategy} "
            f'state [ {{ input_name: "BEFORE" output_name: "AFTER" {_TYPE} '
            f"dims: [ {program.state} ] }} ] }}\n"
        )
    return "".join(lines)


def _steps_of(program: Program) -> str:
    steps = []
    for number, (model, reads, outputs) in enumerate(program.members):
        # a step may not combine an input of the client with a response of a stream
        maps = [("input", "CALL", "CALL")] if (not number or not program.is_streamed) else []
        maps += [("input", f"IN{n}", name) for n, name in enumerate(reads)]
        maps += [("output", f"OUT{n}", name) for n, name in enumerate(outputs) if name]
        lines = (f'{kind}_map {{ key: "{key}" value: "{name}" }}' for kind, key, name in maps)
        steps.append(f'{{ model_name: "{model}" model_version: -1 {" ".join(lines)} }}')
    return f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n"
