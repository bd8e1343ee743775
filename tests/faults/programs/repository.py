"""Programs as a repository of models."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from tests.faults.programs.drawing import Program
from tests.faults.programs.oracle import SERVED
from tests.support.scripted import string_parameter
from tests.support.server import Server

_FILES = ("arrays.py", "interpreter.py", "model.py")
_TYPE = "data_type: TYPE_UINT64"


def write(server: Server, program: Program) -> None:
    code = "" if program.kind == "ensemble" else "pass"
    directory = server.write_model(program.name, config_of(program), code)
    if program.kind != "ensemble":
        fill(directory / "1", program, server.scratch)


def fill(directory: Path, program: Program, scratch: Path) -> None:
    """Write the code of a model, and its program."""
    for name in _FILES:
        shutil.copy(SERVED / name, directory / name)
    text = json.dumps({**asdict(program), "scratch": str(scratch)})
    (directory / "program.json").write_text(text)


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
    return "".join(lines)


def _steps_of(program: Program) -> str:
    steps = []
    for number, (model, reads, outputs) in enumerate(program.members):
        # a step may not combine an input of the client with a response of a stream
        is_first = not number or not program.is_streamed
        maps = [("input", "CALL", "CALL")] if is_first else []
        maps += [("input", f"IN{n}", name) for n, name in enumerate(reads)]
        maps += [("output", f"OUT{n}", name) for n, name in enumerate(outputs) if name]
        lines = (f'{kind}_map {{ key: "{key}" value: "{name}" }}' for kind, key, name in maps)
        steps.append(f'{{ model_name: "{model}" model_version: -1 {" ".join(lines)} }}')
    return f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n"
