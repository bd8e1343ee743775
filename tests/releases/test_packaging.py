"""Packages, and the Makefile that makes them."""

from __future__ import annotations

import configparser
import email
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.releases.distributions import build, run, unpacked
from tests.support.needs import ROOT, find_tool
from tests.support.server import DEMO_MODELS
from tools import editable_finder, optimized_python
from zmqtriton.commit import read_installation
from zmqtriton_floor import __version__

# --------------------------------------------------------------------------- packaging
# Wheel and sdist hold every file of the packages, documentation and manual, and all commands.


PATH_ROOTS = (ROOT, *(ROOT / name for name in ("stub", "frontends", "standard", "extras")))


COMMANDS = {
    "zmqtriton": "zmqtriton.main:main",
    "tritonserver": "zmqtriton.main:main",
    "zmqtriton-ctl": "zmqtriton.ctl.main:main",
}


#: What models import, at the top of the wheel as well, for users' tests of models.
FOR_TESTS_OF_MODELS = ("c_python_backend_utils", "triton_python_backend_utils")


#: What a program may say of public names that add-ons have.
TYPED = """\
import zmqtriton
import zmqtriton.pytriton.client
from zmqtriton import Door, routes, testing
from zmqtriton.door import Door as SameDoor
from zmqtriton.pytriton.decorators import batch
from zmqtriton.pytriton.model_config import ModelConfig, Tensor
from zmqtriton.pytriton.triton import Triton
from zmqtriton.testing import Case, RouteAnswer, load_model

reveal_type(batch)
reveal_type(Triton().run)
reveal_type(ModelConfig().max_batch_size)
reveal_type(zmqtriton.pytriton.client.ModelClient)
reveal_type(zmqtriton.Server("models").ready)
reveal_type(Door("door").model)
same: type[SameDoor] = Door
reveal_type(routes.route)
with load_model("models/add_sub") as model:
    for case in testing.captured("cases"):
        case.check(model)
answer: RouteAnswer = Case  # the only mistake
"""


#: Kinds of files of the examples in the wheel; their scripts make others.
SOURCES = {".py", ".md", ".pbtxt", ".json", ".jsonl", ".bin", ".npy", ""}


CODE = re.compile("^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_oldest_version_of_each_package_is_named() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")

    needed = setup["options"]["install_requires"].split("\n")
    assert [] == [line for line in needed if line and ">=" not in line.partition(";")[0]]


def files_of(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        # Hidden files are editors' and tools'.
        hidden = any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        if path.is_file() and "__pycache__" not in path.parts and not hidden:
            yield path


def shipped_files() -> Iterator[tuple[Path, str]]:
    """Every file of every package: where it is, and its name in the wheel."""
    for root in PATH_ROOTS:
        for package in root.glob("zmqtriton*/"):
            if package.suffix == ".egg-info" or package.name.startswith("zmqtriton-"):
                continue
            for path in files_of(package):
                name = path.relative_to(root).as_posix()
                if "/tests/" not in name:  # those of extras
                    yield path, name
    for name in ("deploy", "examples"):
        for path in files_of(ROOT / name):
            if name == "deploy" or path.suffix in SOURCES or path.name == "requirements.txt":
                yield path, f"zmqtriton_{path.relative_to(ROOT)}"


def installed_beside() -> Iterator[tuple[Path, str]]:
    """Documentation and manual: where each file is, and its name in the wheel."""
    share = f"zmqtriton-{__version__}.data/data/share"
    for path in files_of(ROOT / "man"):
        yield path, f"{share}/man/man1/{path.name}"
    for path in (*files_of(ROOT / "docs"), *ROOT.glob("*.md"), ROOT / "deploy" / "README.md"):
        yield path, f"{share}/doc/zmqtriton/{path.relative_to(ROOT)}"


def built(directory: Path, kind: str) -> Path:
    """Build an sdist or a wheel, and return its path.

    Built from a copy, since setuptools packs what an earlier build left in the tree too.
    """
    source = directory / "source"
    copy_source(source)
    return build(source, directory, f"--{kind}")


def copy_source(source: Path) -> None:
    """Copy all that is packed, without a repository."""
    source.mkdir()
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for path, _ in (*shipped_files(), *installed_beside()):
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    (source / "examples" / "digits" / "digits.joblib").write_text("made by train.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(built(tmp_path_factory.mktemp("wheel"), "wheel")) as archive:
        yield archive


def test_the_wheel_holds_every_file_of_every_package(wheel: zipfile.ZipFile) -> None:
    shipped = {name for _, name in (*shipped_files(), *installed_beside())}
    shipped.update(f"{name}/__init__.py" for name in FOR_TESTS_OF_MODELS)
    written = runpy.run_path(str(ROOT / "setup.py"))["public_files"]()
    shipped.update(f"zmqtriton/{file.path}" for file in written)

    assert shipped == {name for name in wheel.namelist() if ".dist-info/" not in name}


@pytest.mark.long("releases/test_packaging.py::test_the_wheel_holds_every_file_of_every_package")
def test_the_sdist_holds_every_file_where_it_is_here(tmp_path: Path) -> None:
    with tarfile.open(built(tmp_path, "sdist")) as archive:
        packed = set(archive.getnames())

    files = [path for path, _ in (*shipped_files(), *installed_beside())]
    names = [f"zmqtriton-{__version__}/{path.relative_to(ROOT)}" for path in files]
    assert [] == sorted(name for name in names if name not in packed)


def test_nothing_beside_the_packages_is_compiled_when_it_is_installed(
    wheel: zipfile.ZipFile,
) -> None:
    beside = [name for name in wheel.namelist() if ".data/data/" in name]

    assert beside
    assert [] == [name for name in beside if name.endswith(".py")]


def test_each_package_is_in_the_wheel_under_its_own_name(wheel: zipfile.ZipFile) -> None:
    packages = (
        "zmqtriton",
        *(
            f"zmqtriton_{n}"
            for n in "deploy examples extras floor frontends protos standard".split()
        ),
    )

    assert [] == sorted(set(packages) - {name.partition("/")[0] for name in wheel.namelist()})
    assert "zmqtriton_protos/descriptors.pb" in wheel.namelist()


def test_commands_start_where_they_should(wheel: zipfile.ZipFile) -> None:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(wheel.read(f"zmqtriton-{__version__}.dist-info/entry_points.txt").decode())

    assert COMMANDS == dict(parser["console_scripts"])


def test_the_metadata_names_version_licence_and_python(wheel: zipfile.ZipFile) -> None:
    text = wheel.read(f"zmqtriton-{__version__}.dist-info/METADATA").decode()
    metadata = email.message_from_string(text)

    assert ("zmqtriton", __version__) == (metadata["Name"], metadata["Version"])
    assert ("Apache-2.0", ">=3.10") == (metadata["License-Expression"], metadata["Requires-Python"])
    assert {"gpu", "env", "test", "dev"} <= set(metadata.get_all("Provides-Extra", []))
    assert f"zmqtriton-{__version__}.dist-info/licenses/LICENSE" in wheel.namelist()


def test_both_worlds_of_protobuf_are_allowed_and_no_client_is_needed() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")

    required = config["options"]["install_requires"].split()

    assert "protobuf>=6.31,<8" in required
    # Their bounds on protobuf would shut the other world out.
    refused = ("tritonclient", "grpcio-health-checking", "grpcio-reflection", "grpcio-status")
    assert [] == [line for line in required if line.startswith(refused)]


def test_the_packages_say_that_they_are_typed() -> None:
    files = [(path, name) for path, name in shipped_files() if path.suffix == ".py"]
    packages = {path.parent for path, name in files if name.count("/") == 1}

    assert {ROOT / "examples"} == {path for path in packages if not (path / "py.typed").exists()}


def test_a_model_is_tested_without_a_server_as_the_guide_says(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    guide = (ROOT / "docs" / "guides" / "testing.md").read_text("utf-8")
    [script] = [block for block in CODE.findall(guide) if "TritonPythonModel()" in block]
    wheel.extractall(tmp_path)
    model = DEMO_MODELS / "add_sub" / "1"
    # What it says, and then that it was the wheel that said it.
    script += "import zmqtriton_stub\nprint(pb_utils.__file__, zmqtriton_stub.__file__)\n"

    result = subprocess.run(
        [sys.executable, "-B", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=model,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )

    files = [f"{name}/__init__.py" for name in ("triton_python_backend_utils", "zmqtriton_stub")]
    assert ("", 0) == (result.stderr, result.returncode)
    assert " ".join(str(tmp_path / file) for file in files) == result.stdout.strip()


@pytest.mark.long("releases/test_packaging.py::test_the_packages_say_that_they_are_typed")
def test_type_checkers_find_public_names_of_add_ons(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    [packages] = (tmp_path / "venv").glob("lib/python3*/site-packages")
    wheel.extractall(packages)
    (tmp_path / "script.py").write_text(TYPED)
    words = ["--strict", "--python-executable", str(tmp_path / "venv/bin/python"), "script.py"]

    result = subprocess.run(
        [find_tool("mypy"), *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    lines = TYPED.splitlines()
    revealed = re.findall(r'^script.py:(\d+): note: Revealed type is "(.*)"$', result.stdout, re.M)
    assert [number for number, line in enumerate(lines, 1) if "reveal_type" in line] == [
        int(number) for number, _ in revealed
    ]
    assert [] == [kind for _, kind in revealed if kind == "Any"]
    errors = [line for line in result.stdout.splitlines() if ": error: " in line]
    assert [str(len(lines))] == [line.split(":")[1] for line in errors], result.stdout


def test_a_program_finds_one_module_by_both_names_in_the_wheel(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path)
    script = """
import zmqtriton.pytriton.client.exceptions as ours
import zmqtriton_extras.pytriton.client.exceptions as same
import sys, zmqtriton.pytriton as package
print(ours is same, package.__spec__.name, "zmqtriton.addons" in sys.modules, ours.__file__)
"""

    printed = run(tmp_path, script)

    file = tmp_path / "zmqtriton_extras/pytriton/client/exceptions.py"
    assert f"True zmqtriton_extras.pytriton False {file}" == printed.strip()


# -------------------------------------------------------------------------- versions
# A build of a checkout has a version of its own, which grows with its commits.

version_of: Callable[[str, Path], str] = runpy.run_path(str(ROOT / "setup.py"))["build_version"]


def commit(root: Path, day: int) -> str:
    """Commit all files; return the digits of the commit in a version."""
    git = [find_tool("git"), "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@y"]
    moment = f"2026-01-{day:02}T12:00:00+02:00"
    environment = {**os.environ, "GIT_COMMITTER_DATE": moment, "GIT_CONFIG_GLOBAL": os.devnull}
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True, env=environment)
    return subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)[:12]


def test_each_build_has_a_version_and_a_later_one_a_later_version(tmp_path: Path) -> None:
    file, versions = tmp_path / "file", [version_of("1.2.3", tmp_path)]
    for day in (1, 2, 10):
        file.write_text(str(day))
        expected = f"1.2.3+202601{day:02}100000.g{commit(tmp_path, day)}"
        versions.append(version_of("1.2.3", tmp_path))
        assert expected == versions[-1]
    for text in ("changed", "changed again"):
        file.write_text(text)
        assert version_of("1.2.3", tmp_path).startswith(f"{expected}.dirty")
    changed = version_of("1.2.3", tmp_path)
    file.write_text("changed")

    order = [*versions, changed, "1.2.4"]
    assert "1.2.3" == order[0]
    assert order == sorted(reversed(order), key=Version)
    assert changed != version_of("1.2.3", tmp_path)
    # as packages/pytriton asks for it
    assert all(SpecifierSet("==1.2.3").contains(version) for version in versions)


def test_a_release_has_the_version_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    commit(tmp_path, 1)
    subprocess.run([find_tool("git"), "-C", str(tmp_path), "tag", "v1.2.3"], check=True)

    assert "1.2.3" == version_of("1.2.3", tmp_path)
    assert "1.2.4" != version_of("1.2.4", tmp_path)


def test_an_sdist_keeps_its_version(tmp_path: Path) -> None:
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: x\nVersion: 1.2.3+5.gab\n")

    assert "1.2.3+5.gab" == version_of("1.2.3", tmp_path)


@pytest.mark.long(
    "releases/test_packaging.py::test_each_build_has_a_version_and_a_later_one_a_later_version"
)
def test_pip_installs_a_later_build_over_an_earlier_one(tmp_path: Path) -> None:
    source, venv = tmp_path / "source", tmp_path / "venv"
    copy_source(source)
    shutil.copy(ROOT / ".gitignore", source)
    wheels, commits = [], []
    for day in (1, 2):
        (source / "stub/zmqtriton_floor/which.py").write_text(f"BUILD = {day}\n")
        commits.append(commit(source, day))
        wheels.append(build(source, tmp_path / str(day), "--wheel"))
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [str(venv / "bin/pip"), "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    [packages] = venv.glob("lib/python3*/site-packages")

    for wheel, expected in zip(wheels, commits, strict=True):
        subprocess.run([*pip, "--upgrade", str(wheel)], check=True)

        assert expected == read_installation(packages)
    assert "BUILD = 2\n" == (packages / "zmqtriton_floor/which.py").read_text()


# ------------------------------------------------------------------- pytriton package
PACKAGE = ROOT / "packages" / "pytriton"


#: The public names of PyTriton 0.7.0's modules, as far as scripts have a use for them.
NAMES = {
    "__main__": "main",
    "check": "",
    "check.add_sub": "add_sub_example add_sub_example_thread",
    "check.env_checks": "env_checks",
    "check.utils": "DEFAULT_LOG_FORMAT ScriptThread find_free_port",
    "client": "AsyncioDecoupledModelClient AsyncioModelClient DecoupledModelClient "
    "FuturesModelClient ModelClient",
    "client.asyncio_utils": "asyncio_get_model_config asyncio_get_model_state "
    "asyncio_wait_for_model_ready",
    "client.auth": "create_auth_headers extract_access_token_from_headers",
    "client.client": "AsyncioDecoupledModelClient AsyncioModelClient BaseModelClient "
    "DEFAULT_INFERENCE_TIMEOUT_S DecoupledModelClient FuturesModelClient ModelClient",
    "client.exceptions": "PyTritonClientClosedError PyTritonClientError "
    "PyTritonClientInferenceServerError PyTritonClientInvalidUrlError "
    "PyTritonClientModelDoesntSupportBatchingError PyTritonClientModelUnavailableError "
    "PyTritonClientQueueFullError PyTritonClientTimeoutError PyTritonClientValueError",
    "client.utils": "DEFAULT_GRPC_PORT DEFAULT_HTTP_PORT ModelState TritonUrl "
    "create_client_from_url get_model_config get_model_state "
    "wait_for_model_ready wait_for_server_ready",
    "client.warnings": "NotSupportedTimeoutWarning PyTritonWarning",
    "constants": "DEFAULT_GRPC_PORT DEFAULT_HTTP_PORT DEFAULT_METRICS_PORT TRITON_LOCAL_IP "
    "DEFAULT_TRITON_STARTUP_TIMEOUT_S TRITON_CONTEXT_FIELD_NAME",
    "decorators": "ConstantPadder InferenceRequest InferenceRequests InferenceResult "
    "InferenceResults InputNames ModelConfigDict TritonContext batch convert_output "
    "fill_optionals first_value get_inference_request_batch_size get_model_config "
    "get_triton_context group_by_keys group_by_values pad_batch sample triton_context",
    "exceptions": "PyTritonBadParameterError PyTritonError PyTritonInvalidOperationError "
    "PyTritonModelConfigError PyTritonRuntimeError PyTritonUnrecoverableError "
    "PyTritonValidationError",
    "model_config": "DeviceKind DynamicBatcher ModelConfig QueuePolicy Tensor TimeoutAction",
    "model_config.common": "DeviceKind DynamicBatcher ModelWarmup QueuePolicy TimeoutAction "
    "WarmupInput",
    "model_config.generator": "ModelConfigGenerator",
    "model_config.model_config": "ModelConfig",
    "model_config.parser": "ModelConfigParser",
    "model_config.tensor": "Tensor",
    "model_config.triton_model_config": "ResponseCache TensorSpec TritonModelConfig",
    "proxy.telemetry": "build_proxy_tracer_from_triton_config end_span get_telemetry_tracer "
    "parse_trace_config set_telemetry_tracer start_span_from_remote start_span_from_span "
    "traced_span",
    "proxy.types": "Request Requests Response Responses ResponsesNoneOrError ResponsesOrError "
    "Scope",
    "triton": "DEFAULT_PROTECTED_ENDPOINTS DefaultTritonLifecyclePolicy RemoteTriton "
    "TRITON_ACCESS_HEADER Triton TritonBase TritonConfig TritonLifecyclePolicy "
    "TritonSecurityConfig VALID_TRITON_ENDPOINTS VertextAILifecyclePolicy",
    "utils": "",
    "utils.dataclasses": "kwonly_dataclass",
    "utils.distribution": "get_root_module_path is_editable_install",
    "utils.endpoint_utils": "get_endpoint",
    "utils.logging": "silence_3rd_party_loggers",
    "utils.workspace": "Workspace",
}


#: Prints what a script finds under each module's names.
SCRIPT = """
import importlib, json, sys
found = {}
for name, names in json.load(sys.stdin).items():
    theirs = importlib.import_module(f"pytriton.{name}")
    ours = importlib.import_module(f"zmqtriton.pytriton.{name}")
    found[name] = [key for key in names.split() if getattr(theirs, key) is not getattr(ours, key)]
print(json.dumps([theirs.__file__, found]))
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place where a script finds its wheel, unpacked."""
    return unpacked(PACKAGE, tmp_path_factory.mktemp("pytriton"))


@pytest.mark.long(
    "releases/test_packaging.py::test_a_program_finds_one_module_by_both_names_in_the_wheel"
)
def test_scripts_find_our_names_under_pytritons(target: Path) -> None:
    path, differing = json.loads(run(target, SCRIPT, NAMES))

    assert str(target) in path
    assert {name: [] for name in NAMES} == differing


def test_modules_are_imported_when_they_are_asked_for(target: Path) -> None:
    code = """
import sys, pytriton
from pytriton.decorators import batch
loaded = {name for name in sys.modules if name.startswith("zmqtriton")}
client = "zmqtriton_extras.pytriton.client"
print(pytriton.__version__, client in loaded, "zmqtriton.embedded" in loaded)
print(pytriton.model_config.Tensor.__module__, hasattr(pytriton, "nothing"))
"""
    assert [
        "0.7.0 False False",
        "zmqtriton_extras.pytriton.model_config.tensor False",
    ] == run(target, code).splitlines()


def test_all_its_modules_are_among_those_with_names(target: Path) -> None:
    modules = {
        ".".join(path.relative_to(target / "pytriton").with_suffix("").parts)
        for path in (target / "pytriton").rglob("*.py")
    }

    assert {*NAMES, "proxy"} == {name.removesuffix(".__init__") for name in modules} - {"__init__"}


def test_its_version_is_that_of_zmqtriton() -> None:
    text = (PACKAGE / "pyproject.toml").read_text("utf-8")

    assert [__version__, __version__] == re.findall(r'"(?:zmqtriton==)?([0-9][0-9.]+)"', text)


# ---------------------------------------------------------------------------- makefile
# The Makefile: which environments a target makes anew, and of what.


def test_a_package_that_has_moved_leaves_no_directory_that_is_imported(tmp_path: Path) -> None:
    for name in ("stays/__pycache__/m.pyc", "stays/m.py", "moved/in/__pycache__/n.pyc"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    editable_finder.remove_leftovers(tmp_path)

    left = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")}
    assert left == {"stays", "stays/m.py", "stays/__pycache__", "stays/__pycache__/m.pyc"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an environment that is older than its setup.cfg."""
    (tmp_path / "tools").mkdir()
    for name in ("Makefile", "setup.cfg", "tools/editable_finder.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (".venv/pyvenv.cfg", ".venv/bin/uv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (0, 0))
    return tmp_path


def commands(checkout: Path, *target: str) -> list[str]:
    # `make test` may be what runs this
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "--dry-run", *target],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_no_target_takes_the_environment_of_another(checkout: Path) -> None:
    of_ray = commands(checkout, "test", "KIND=fleet")
    own = commands(checkout, "quick")

    assert any(" .venv-ray " in line for line in of_ray)
    assert not [line for line in of_ray if line.endswith("--clear .venv")]
    assert [line for line in own if line.endswith("--clear .venv")]


def test_each_tier_has_a_target_and_coverage_has_both() -> None:
    makefile = (ROOT / "Makefile").read_text()

    tiers = {
        target: re.findall(r"pytest -n .*--tier=(\w+)|(?:pytest -n)", recipe)
        for target in ("kind-first", "kind-long", "coverage")
        for recipe in re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    }

    assert {"kind-first": ["first"], "kind-long": ["long"], "coverage": [""]} == tiers


def test_all_that_must_pass_has_both_tiers() -> None:
    steps = (ROOT / ".ci" / "run").read_text().splitlines()

    run = [
        shlex.split(line)[1]
        for line in map(str.strip, steps)
        if line.startswith(("make ", "tests "))
    ]
    assert {"check", "test", "test-extras"} <= {*run}
    assert any('tests "test KIND=long" "$order --share=$1/10"' in line for line in steps)


@pytest.mark.parametrize("target", ["test", "bench", "faults"])
def test_each_kind_that_a_page_names_is_there(target: str) -> None:
    word = "KIND" if target == "test" else "OF"
    named = re.findall(rf"make {target} {word}=([\w-]+)", (ROOT / "CONTRIBUTING.md").read_text())
    prefix = "kind" if target == "test" else target

    makefile = (ROOT / "Makefile").read_text()
    there = re.findall(rf"^{prefix}-([\w-]+):", makefile, re.MULTILINE)

    assert {*named} == {*there} - {"first", "run"}


def test_an_environment_gets_a_changed_finder(checkout: Path) -> None:
    for second, name in enumerate((".venv/pyvenv.cfg", ".venv/test.stamp"), start=1):
        (checkout / name).touch()
        os.utime(checkout / name, (second, second))
    for path in (checkout / "setup.cfg", checkout / "tools" / "editable_finder.py"):
        os.utime(path, (0, 0))
    finder = ".venv/bin/python tools/editable_finder.py"

    before = commands(checkout, ".venv/test.stamp")
    (checkout / "tools" / "editable_finder.py").touch()
    after = commands(checkout, ".venv/test.stamp")

    assert (False, True) == (finder in before, finder in after)
    assert not [line for line in after if line.endswith("--clear .venv")]


def test_an_optimised_python_of_the_system_is_taken_in_place_of_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "bin" / "python{}.{}".format(*sys.version_info)
    system.parent.mkdir()
    monkeypatch.setattr(optimized_python, "SYSTEM", system.parent)
    arguments = "--prefix=/opt"
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: arguments)
    monkeypatch.setattr(sys, "base_prefix", "/opt")

    without = optimized_python.choose()
    system.write_text("#!/bin/sh\nexit 1\n")
    system.chmod(0o755)
    unable = optimized_python.choose()
    system.write_text("#!/bin/sh\n")
    able = optimized_python.choose()
    arguments = "--enable-optimizations"

    assert [sys.executable] * 2 == [without, unable]
    assert str(system) == able
    assert sys.executable == optimized_python.choose(), "it is optimised itself"


def test_the_choice_is_a_program() -> None:
    """Run as the Makefile does, in a Python that has nothing installed."""
    command = [sys.executable, "-S", str(ROOT / "tools" / "optimized_python.py")]

    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    subprocess.run([printed.rstrip("\n"), "-c", "import venv"], check=True)


def test_packages_in_editable_form_are_found_without_other_modules(tmp_path: Path) -> None:
    site, source = tmp_path / "site", tmp_path / "source"
    for name in ("one/__init__.py", "one/data/inner.txt", "files/text.txt"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    site.mkdir()
    mapping = {"one": str(source / "one"), "data_alone": str(source / "files")}
    finder = site / f"__editable___{tmp_path.name}_finder.py"
    finder.write_text(f"import pathlib\nMAPPING = {mapping}\n")
    program = f"""
import sys
before = {{*sys.modules}}
import {finder.stem} as finder
finder.install()
import one, one.data, data_alone
print(*sorted({{*sys.modules}} - before), sep=",")
from importlib.resources import files
print(files("data_alone").joinpath("text.txt").is_file())
"""

    rewritten = [editable_finder.rewrite(site), editable_finder.rewrite(site)]

    environment = {"PYTHONPATH": str(site), "PATH": os.defpath}
    command = [sys.executable, "-S", "-c", program]
    printed = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert [[finder], []] == rewritten
    assert [f"{finder.stem},data_alone,one,one.data", "True"] == printed.splitlines()
