"""The repository and the tokens of a server that is attacked."""

from __future__ import annotations

import random
import secrets
from pathlib import Path

from tests.faults.attacks import over_routes
from tests.faults.attacks.target import (
    ECHO,
    ENDLESS,
    OVERWRITING,
    ROUTED,
    SIZED,
    SPOKEN,
    STREAMED,
    TEMPLATES,
)
from tests.support.server import Server
from zmqtriton_floor import execution_progress
from zmqtriton_floor.token_file import digest

#: Those that honest clients ask.
HONEST = ("journal", "tokens")
#: Answers with as much as it is told.
_SIZED = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sizes = [int(pb_utils.get_input_tensor_by_name(r, "KIB").as_numpy()[0]) for r in requests]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(size << 8, np.float32))])
            for size in sizes
        ]
"""
#: The same, and overwrites the page that tells how far it is.
_OVERWRITING = f"""
import ctypes
{_SIZED.replace("sizes = ", "overwrite(); sizes = ")}
def overwrite():
    for line in open("/proc/self/maps"):
        place, rights, *_ = line.split()
        begin, end = (int(part, 16) for part in place.split("-"))
        if rights == "rw-s" and end - begin == {execution_progress.SIZE}:
            ctypes.memset(begin, 0xFF, end - begin)
"""
_CONFIG = """
backend: "python"
input { name: "KIB" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
_LOOP = "{{% for {0} in range(99999) %}}{1}{{% endfor %}}"
#: What a template does again and again.
_WORK = (
    "{{ 'a' * 100000 }}",
    "{% set x = 'a' * 1000000 %}",
    "{{ messages | tojson }}",
    "{{ (range(9999) | list | join('x')) | upper }}",
    "{% if '" + "a" * 40 + "' in messages %}x{% endif %}",
)


def prepare(server: Server, chance: random.Random) -> None:
    for source, name in (
        ("identity_fp32", ECHO),
        ("tokens", STREAMED),
        ("parrot", SPOKEN),
        *(("parrot", f"{ENDLESS}{number}") for number in range(TEMPLATES)),
    ):
        server.add_model(source, name)
        config = server.repository / name / "config.pbtxt"
        config.write_text(config.read_text().replace(f'name: "{source}"', f'name: "{name}"'))
    for number in range(TEMPLATES):
        template = chance.choice(_WORK)
        for depth in range(chance.randint(2, 4)):
            template = _LOOP.format(f"i{depth}", template)
        (server.repository / f"{ENDLESS}{number}" / "chat_template.jinja").write_text(template)
    for name, code in ((SIZED, _SIZED), (OVERWRITING, _OVERWRITING), (ROUTED, _SIZED)):
        model = server.repository / name / "1" / "model.py"
        model.parent.mkdir(parents=True)
        model.write_text(code)
        (model.parent.parent / "config.pbtxt").write_text(_CONFIG)
    (server.repository / ROUTED / "1" / "routes.py").write_text(over_routes.CODE)
    with (server.repository / ROUTED / "config.pbtxt").open("a") as file:
        for key, value in (("ROUTES_SECONDS", 3), ("max_memory_bytes", 400 << 20)):
            file.write(f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n')


def write_token(path: Path) -> str:
    """Write the file of tokens, with one for everything; return it."""
    token = secrets.token_hex(16)
    path.write_text(f"attacker sha256:{digest(token).hex()} scopes=infer,control,metrics\n")
    path.chmod(0o600)
    return token
