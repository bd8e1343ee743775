"""Copies that the server makes of requests and answers: captures, and requests of canaries."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner

from tests.faults.programs.clients import fault_of
from tests.faults.programs.drawing import Program
from tests.faults.programs.oracle import Oracle, arrays
from tests.faults.programs.report import Report
from tests.faults.programs.ways import in_order
from tests.support.server import Server
from zmqtriton.ctl.main import cli
from zmqtriton_extras.capture.records import Record, read
from zmqtriton_floor.errors import InvalidArgument

#: The share of requests that are captured, and the bytes of captures at most.
_SHARE, _BYTES = "4%", 256 << 20
#: The records that are sent again at most.
_MOST_AGAIN = 60
#: Seconds until a record is written.
_WRITTEN_S = 1.0


class Captures:
    """The captures of one server. Records must be what was sent and answered."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "captures"
        self.options = [
            f"--capture=*:{_SHARE}",
            f"--capture-to={self._directory}",
            f"--capture-byte-size={_BYTES}",
        ]

    def check(self, runtime: str, programs: Sequence[Program], report: Report, world: str) -> None:
        """Compare each record with the oracle, and send some of them again."""
        time.sleep(_WRITTEN_S)
        oracle, by_name = Oracle(programs), {program.name: program for program in programs}
        #: Records of requests that a kill has failed: these succeed now.
        failed = set()
        for record in read(self._directory) if self._directory.exists() else ():
            report.records += 1
            if record.has_failed:
                failed.add(record.id)
            program = by_name.get(record.model)
            # requests to routes are captured as well
            if program is None or program.state or record.has_failed:
                continue
            if fault := _fault_in(record, program, oracle, report):
                report.add_wrong("captured", f"world {world}: {record.id}: {fault}", program)
        words = ["replay", str(self._directory), f"--limit={_MOST_AGAIN}", "--json"]
        result = CliRunner().invoke(cli, [f"--runtime-directory={runtime}", *words])
        if result.exit_code == 1 and '"results"' in result.stdout:
            again = json.loads(result.stdout)
            shown = [
                row
                for row in again["shown"]
                if _has_order(by_name.get(row["model"])) and row["id"] not in failed
            ]
            if shown:
                report.add_error(f"replay: {again['results']}: {shown}")
            if any(row["result"] == "different" for row in shown):
                report.add_wrong("replayed", f"world {world}: {shown}", None)


def _has_order(program: Program | None) -> bool:
    """Return whether the responses of a program come in one order only."""
    return program is None or program.kind != "ensemble" or program.responses == 1


def _fault_in(record: Record, program: Program, oracle: Oracle, report: Report) -> str:
    try:
        inputs = {one["name"]: record.array(one) for one in record.document["request"]["inputs"]}
        answers = [
            in_order({one["name"]: record.array(one) for one in response["outputs"]})
            for response in record.document["responses"]
            if response["outputs"]
        ]
    except InvalidArgument:  # the oldest files are removed
        return ""
    call = int(inputs.pop("CALL")[0])
    sent = in_order(inputs)
    report.add_looks(len(sent) + sum(map(len, answers)))
    for number, array in enumerate(sent):
        meant = arrays.ramp(call, number, len(array))
        if difference := arrays.difference(meant, array, report.numbers):
            return f"IN{number}: {difference}"
    return fault_of(program, oracle.answers(program.name, sent), answers, report.numbers)


class Canary:
    """A second version of a program with the same steps, which gets some requests and copies."""

    def __init__(self, server: Server, program: Program) -> None:
        self._server = server
        self.program = program

    def start(self, report: Report) -> None:
        directory = self._server.repository / self.program.name
        shutil.copytree(directory / "1", directory / "2")
        settings = {"version": 2, "shadow": "60%", "weight": 20}
        limits = {"abort_failures": "off", "abort_latency": "off"}
        path = f"/v2/models/{self.program.name}/canary"
        status, answer = self._server.request_json(path, {**settings, **limits})
        if status != 200:
            report.add_error(f"canary: {status} {answer}")

    def check(self, report: Report, world: str) -> None:
        """Its answers to copies must be those of the first version."""
        status, state = self._server.request_json(f"/v2/models/{self.program.name}/canary")
        if status != 200:
            report.add_error(f"canary: {status} {state}")
            return
        comparisons = state["comparisons"]
        report.add_looks(comparisons["equal"] + comparisons["different"])
        report.comparisons += comparisons["equal"]
        if comparisons["different"]:
            words = f"world {world}: {comparisons['differences']}"
            report.add_wrong("copies of a canary", words, self.program)
        if comparisons["failed"]:
            report.add_error(f"{comparisons['failed']} copies have failed")
