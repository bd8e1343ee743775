"""zmqtriton-client: what the wheel holds and needs, and that it asks a server without the rest."""

from __future__ import annotations

import email
import importlib.util
import json
import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.releases.distributions import build
from tests.support.needs import ROOT
from tests.support.server import DEMO_MODELS as DEMO
from tests.support.server import Server
from zmqtriton_floor import __version__

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[DEMO / "add_sub", DEMO / "tokens"]),
]
ROOTS = ("", "stub", "frontends", "standard", "extras")
#: Import names of what each extra asks for.
EXTRAS = {"": [], "grpc": ["grpc", "google", "typing_extensions"], "door": ["zmq", "msgpack"]}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of an sdist, that of a checkout."""
    directory = tmp_path_factory.mktemp("client")
    checkout = directory / "checkout"
    (checkout / "packages").mkdir(parents=True)
    for name in ("setup.py", "zmqtriton", *ROOTS[1:]):
        (checkout / name).symlink_to(ROOT / name)
    mine = shutil.ignore_patterns("*.egg-info", "build", "modules")
    package = shutil.copytree(
        ROOT / "packages" / "client", checkout / "packages/client", ignore=mine
    )
    return build(package, directory)


@pytest.fixture(scope="module")
def target(wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "target")
    return wheel.parent / "target"


def run_alone(
    target: Path, code: str, *words: str, extra: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a script in a Python that has the package, NumPy and one extra."""
    libraries = target.parent / f"libraries-{extra}"
    libraries.mkdir(exist_ok=True)
    for name in ("numpy", *EXTRAS[extra]):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        place = Path(next(iter(spec.submodule_search_locations or ()), spec.origin or ""))
        for path in (place, *place.parent.glob(f"*{name}.libs")):
            if not (libraries / path.name).exists():
                (libraries / path.name).symlink_to(path)
    # without site-packages, and without what an editable installation adds to them
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *words],
        cwd=target,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (target, libraries)))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_small_and_its_files_are_the_servers(wheel: Path) -> None:
    files = runpy.run_path(str(ROOT / "setup.py"))["public_files"]()
    written = {f"zmqtriton/{file.path}": file.text for file in files}
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        public = {name: archive.read(name).decode() for name in {*names} & written.keys()}
        for name in {*names} - written.keys():
            [path] = [ROOT / root / name for root in ROOTS if (ROOT / root / name).is_file()]
            assert path.read_bytes() == archive.read(name), name

    assert wheel.stat().st_size < 200_000
    wanted = ("zmqtriton_extras/door/client/connection.py", "zmqtriton_protos/descriptors.pb")
    assert {*wanted, "zmqtriton/py.typed"} <= {*names}
    assert public.items() <= written.items()
    typed = ("__init__.pyi", "door/__init__.py", "pytriton/client/__init__.py")
    assert {f"zmqtriton/{name}" for name in typed} <= public.keys()
    parts = ("broker", "supervisor", "options", "ctl", "main.py")
    assert [] == [name for name in names if name.startswith(tuple(f"zmqtriton/{p}" for p in parts))]


def test_it_needs_numpy_and_has_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"zmqtriton_client-{__version__}.dist-info/METADATA").decode()
    metadata = email.message_from_string(text)

    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert __version__ == metadata["Version"]
    assert (["numpy>=1.22"], ["grpc", "door"]) == (needed, metadata.get_all("Provides-Extra"))


ASKS = """
import json, sys
import numpy as np
from zmqtriton.pytriton.client import DecoupledModelClient, ModelClient
url = sys.argv[1]
a = np.arange(16, dtype=np.float32)
with ModelClient(url, "add_sub") as client:
    print(json.dumps(client.infer_sample(INPUT0=a, INPUT1=a)["OUTPUT0"].tolist()))
if url.startswith("grpc"):
    with DecoupledModelClient(url, "tokens") as client:
        text = np.array([b"one two"])
        print(json.dumps([answer["TOKEN"].item().decode() for answer in client.infer_sample(text)]))
print(json.dumps(sorted({n.partition(".")[0] for n in sys.modules} & {"grpc", "zmq", "google"})))
"""


def test_numpy_is_enough_over_http(server: Server, target: Path) -> None:
    client = run_alone(target, ASKS, f"localhost:{server.http_port}")

    assert "" == client.stderr
    assert [[2.0 * n for n in range(16)], []] == [*map(json.loads, client.stdout.splitlines())]


def test_with_its_extra_it_asks_over_grpc(server: Server, target: Path) -> None:
    client = run_alone(target, ASKS, f"grpc://localhost:{server.grpc_port}", extra="grpc")

    assert "" == client.stderr
    sums, words, modules = map(json.loads, client.stdout.splitlines())
    assert [2.0 * n for n in range(16)] == sums
    assert (["one", "two"], ["google", "grpc"]) == ([word for word in words if word], modules)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (
            "from zmqtriton.pytriton.client import ModelClient; ModelClient('grpc://h', 'm')",
            "No module named 'grpc', which gRPC needs: pip install 'zmqtriton-client[grpc]'",
        ),
        pytest.param(
            "import zmqtriton; zmqtriton.Door('/nowhere')",
            "No module named 'msgpack', which the door needs: pip install 'zmqtriton-client[door]'",
            marks=pytest.mark.long(
                "system/clients/test_client_package.py::test_what_lacks_is_told"
            ),
        ),
        (
            "import zmqtriton; zmqtriton.Server('models')",
            "No module named 'zmqtriton.embedded.server': zmqtriton.Server is in zmqtriton, not in "
            "zmqtriton-client",
        ),
    ],
)
def test_what_lacks_is_told(target: Path, code: str, error: str) -> None:
    assert f"ModuleNotFoundError: {error}" == run_alone(target, code).stderr.splitlines()[-1]


def test_with_its_extra_it_looks_for_a_door(target: Path) -> None:
    failed = run_alone(target, "import zmqtriton; zmqtriton.Door('/nowhere')", extra="door")

    assert (
        "no server at '/nowhere', start one with --zmq-door: No such file or directory"
        in failed.stderr.splitlines()[-1]
    )
