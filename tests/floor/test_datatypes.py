"""The table of datatypes is the one place that knows what is special about each."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The names of types in PyTorch, and in Triton's API in the process, are theirs.
FOREIGN = ("pytorch/modules.py", "tritonserver/enums.py", "tritonserver/responses.py")


def test_no_other_file_names_a_datatype_that_numpy_lacks() -> None:
    rooms = ("stub", "frontends", "zmqtriton", "addons")
    files = (path for room in rooms for path in (ROOT / room).rglob("*.py"))
    named = {path.relative_to(ROOT).as_posix() for path in files if "BF16" in path.read_text()}

    assert ["stub/zmqtriton_floor/datatypes.py"] == [n for n in named if not n.endswith(FOREIGN)]
