"""The preparation of environments: real interpreters, our own packages and index, no network."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import zmqtriton_stub.probe
from tests.standard.environments.test_unpack import Member, file, link, pack
from tests.support.refusals import refusal
from tests.support.reports import Reports
from tests.support.wheels import write_wheel
from zmqtriton.environments.demand import (
    ARCHIVE,
    INTERPRETER,
    REQUIREMENTS,
    Environment,
    EnvironmentSpec,
)
from zmqtriton_floor.errors import InternalError
from zmqtriton_standard.environments import interpreters, prepare
from zmqtriton_standard.environments.cache import EnvironmentCache
from zmqtriton_standard.environments.prepare import build_environment, prepare_environment

pytestmark = pytest.mark.system

#: What conda-pack writes in place of where the environment was, and its program that undoes it.
PLACEHOLDER = "/opt/placehold_placehold"
CONDA_UNPACK = f"""#!/usr/bin/env python
import os
_prefix_records = [
('bin/tool', '{PLACEHOLDER}', 'text'),
('lib/mine', '/home/me/env', 'binary')
]
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for name in ("bin/tool", "bin/run-count"):
    path = os.path.join(here, name)
    text = open(path).read() if os.path.exists(path) else ""
    with open(path, "w") as file:
        file.write(text.replace("{PLACEHOLDER}", here) if name == "bin/tool" else text + "x")
"""


def fake_python(lines: str = "") -> bytes:
    """A program that is no link, as in a conda environment, and is the Python of this test."""
    return f'#!/bin/sh\n{lines}\nexec {sys.executable} "$@"\n'.encode()


def conda() -> list[Member]:
    """As conda-pack lays it out."""
    return [
        file("bin/activate", b"export CONDA_PREFIX=..."),
        file("bin/python3.11", fake_python(), mode=0o755),
        link("bin/python", "python3.11"),
        link("bin/python3", "python3.11"),
        file("bin/conda-unpack", CONDA_UNPACK.encode(), mode=0o755),
        file("bin/tool", f"#!{PLACEHOLDER}/bin/python\n".encode(), mode=0o755),
        file("conda-meta/history"),
        file("lib/libown.so.1.2", b"code"),
        link("lib/libown.so", "libown.so.1.2"),
        link("lib/libown.so.1", "./libown.so.1.2"),
        # Of no package: conda-pack leaves it as it was.
        link("lib/libown.so.mine", "/home/me/env/lib/libown.so"),
    ]


@pytest.mark.row("B12")
def test_an_archive_of_conda_pack_is_unpacked_and_adapted_once(tmp_path: Path) -> None:
    cache, said = EnvironmentCache(str(tmp_path / "cache")), Reports()
    one = pack(tmp_path / "one.tar.gz", conda())
    two = tmp_path / "two.tar.gz"
    two.write_bytes(one.read_bytes())

    environments = [
        prepare_environment(EnvironmentSpec(ARCHIVE, str(path)), cache, said)
        for path in (one, two, one)
    ]

    root = Path(environments[0].root)
    assert [environments[0]] * 3 == environments
    assert f"#!{root}/bin/python\n" == (root / "bin" / "tool").read_text()
    assert b"code" == (root / "lib" / "libown.so.mine").read_bytes()
    assert "x" == (root / "bin" / "run-count").read_text()
    assert [f"Extracting Python execution env {one}"] == [
        t for t in said.texts if "Extracting" in t
    ]
    assert f"{root}/bin/python" == environments[0].python
    assert environments[0].is_conda


@pytest.mark.row("B12")
def test_an_archive_that_is_refused_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    cache = EnvironmentCache(str(tmp_path / "cache"))
    path = pack(tmp_path / "env.tar.gz", [*conda(), file("../../x", b"evil")])

    with pytest.raises(InternalError, match=r"'\.\./\.\./x' leads outside"):
        prepare_environment(EnvironmentSpec(ARCHIVE, str(path)), cache, Reports())

    assert [] == cache.entries()
    assert [] == [p for p in (cache.root / "archives").iterdir() if p.is_dir()]
    assert not list(tmp_path.rglob("x"))


def test_a_conda_unpack_that_fails_is_the_reason(tmp_path: Path) -> None:
    others = ("bin/conda-unpack", "lib/libown.so.mine")
    members = [member for member in conda() if member[0].name not in others]
    members.append(file("bin/conda-unpack", b"raise SystemExit('no prefix')", mode=0o755))
    path = pack(tmp_path / "env.tar.gz", members)
    cache = EnvironmentCache(str(tmp_path / "cache"))

    with pytest.raises(InternalError, match="bin/conda-unpack failed: no prefix"):
        prepare_environment(EnvironmentSpec(ARCHIVE, str(path)), cache, Reports())
    assert [] == cache.entries()


def test_scripts_that_conda_would_run_are_named_in_a_warning(tmp_path: Path) -> None:
    path = pack(tmp_path / "env.tar.gz", [*conda(), file("etc/conda/activate.d/gdal.sh")])
    said = Reports()

    prepare_environment(
        EnvironmentSpec(ARCHIVE, str(path)), EnvironmentCache(str(tmp_path / "cache")), said
    )

    (warning,) = [text for level, text in said.lines if level == "W"]
    assert "etc/conda/activate.d" in warning
    assert warning.endswith(
        "are not run: gdal.sh. What they set must be in the server's environment"
    )


def test_an_archive_without_an_environment_is_said_in_tritons_words(tmp_path: Path) -> None:
    path = pack(tmp_path / "env.tar.gz", [file("README")])

    with pytest.raises(InternalError, match=r"bin/activate does not exist\. The Python environm"):
        prepare_environment(
            EnvironmentSpec(ARCHIVE, str(path)),
            EnvironmentCache(str(tmp_path / "cache")),
            Reports(),
        )


# ---------------------------------------------------------------- interpreters


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/nowhere/python\n", "cannot be run: No such file or directory"),
        ("\x7fELF of another machine", "cannot be run: Exec format error"),
        ("#!/bin/sh\necho no libpython >&2; exit 127\n", "does not work: no libpython"),
        (
            "#!/bin/sh\nPYTHONHOME=/nowhere exec " + sys.executable + " -c 1\n",
            "ModuleNotFoundError: No module named 'encodings'",
        ),
        (
            "#!/bin/sh\necho 'zmqtriton-probe {\"version\": [3, 7, 9]}'\n",
            "is Python 3.7.9; models need Python 3.8 or newer",
        ),
        (
            "#!/bin/sh\necho 'zmqtriton-probe "
            '{"version": [3, 9], "lacks": ["zmq"], "closed": ["/x"]}\'\n',
            "cannot see its packages: Permission denied for the user",
        ),
    ],
)
def test_an_interpreter_that_is_of_no_use_says_why(tmp_path: Path, text: str, why: str) -> None:
    python = script(tmp_path / "python", text)

    assert why in refusal(InternalError, interpreters.probe, Environment(python))


def test_an_interpreter_tells_what_it_is(tmp_path: Path) -> None:
    # What startup files print is no answer.
    noisy = script(tmp_path / "python", fake_python("echo zmqtriton; echo -n '{}'").decode())

    interpreter = interpreters.probe(Environment(noisy))

    assert sys.version_info[:3] == interpreter.version
    assert os.path.realpath(sys.executable) == interpreter.executable
    assert () == interpreter.missing_modules
    # the stub cannot import the server's
    assert zmqtriton_stub.probe.MARK == interpreters._OUTPUT_MARK


def test_a_name_is_looked_up_and_its_version_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = "python{}.{}".format(*sys.version_info)
    for folder, text in (("shim", "#!/bin/sh\necho no such version >&2; exit 127\n"), ("real", "")):
        (tmp_path / folder).mkdir()
        script(tmp_path / folder / version, text or fake_python().decode())
    script(tmp_path / "real" / "python3.99", fake_python().decode())
    monkeypatch.setenv("PATH", f"{tmp_path}/shim:{tmp_path}/real:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert f"{tmp_path}/real/{version}" == interpreters.find_interpreter(version)
    with pytest.raises(InternalError, match=r"'python3\.99': there is no such interpreter"):
        interpreters.find_interpreter("python3.99")


# -------------------------------------------------------- what stubs need


def lacking(*modules: str, abi: str = "") -> interpreters.Interpreter:
    own = interpreters.server_interpreter()
    missing = modules or ("zmq", "msgpack")
    return own._replace(path="/model/python", missing_modules=missing, abi=abi or own.abi)


@pytest.mark.row("B13")
def test_a_python_like_the_servers_gets_copies_of_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "find_uv", lambda: None)
    cache = EnvironmentCache(str(tmp_path))

    directory = Path(prepare.prepare_support_directory(lacking(), cache, Reports()))

    names = {path.name.partition("-")[0] for path in directory.iterdir()}
    assert {"zmq", "msgpack"} == names - {"pyzmq", "pyzmq.libs"}
    assert str(directory) == prepare.prepare_support_directory(lacking(), cache, Reports())
    more = prepare.prepare_support_directory(lacking("zmq", "numpy"), cache, Reports())
    assert {"zmq", "numpy"} <= {path.name for path in Path(more).iterdir()}


@pytest.mark.row("B13")
def test_what_cannot_be_supplied_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = EnvironmentCache(str(tmp_path))
    monkeypatch.setattr(interpreters, "find_uv", lambda: None)
    monkeypatch.setattr(prepare, "SERVER_PYTHON", "/no/python")

    with pytest.raises(InternalError) as without_pip:
        prepare.prepare_support_directory(lacking(abi="cpython-399-other"), cache, Reports())
    fails = script(tmp_path / "uv", "#!/bin/sh\necho no route to host; exit 2\n")
    monkeypatch.setattr(interpreters, "find_uv", lambda: fails)
    with pytest.raises(InternalError) as without_network:
        prepare.prepare_support_directory(lacking(abi="cpython-399-other"), cache, Reports())

    sentence = (
        "The Python environment of /model/python lacks the module 'zmq', which every model "
        "needs. Install it with: /model/python -m pip install pyzmq msgpack"
    )
    nobody = "Installing pyzmq, msgpack failed: {}: No such file or directory"
    reasons = f"{nobody.format('/model/python')}; {nobody.format('/no/python')}"
    assert f"{sentence} ({reasons})" == without_pip.value.text
    assert (
        f"{sentence} (Installing pyzmq, msgpack failed: no route to host)"
        == without_network.value.text
    )
    assert [] == cache.entries()


#: A Python whose pip says what it was asked for, where it was to install that.
_PIP = """#!/bin/sh
for argument; do
  [ "$last" = --target ] && tree=$argument
  last=$argument
done
echo "$@" > "$tree/asked"
"""


@pytest.mark.row("B13")
def test_without_uv_the_environments_own_pip_supplies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "find_uv", lambda: None)
    python = lacking(abi="cpython-399-other")._replace(path=script(tmp_path / "python", _PIP))

    directory = prepare.prepare_support_directory(
        python, EnvironmentCache(str(tmp_path)), Reports()
    )

    words = Path(directory, "asked").read_text()
    assert words.startswith("-I -m pip install --target")
    assert words.endswith(" pyzmq msgpack\n")


@pytest.mark.row("B13")
@pytest.mark.parametrize(
    ("abi", "tags", "platform"),
    [
        ("cpython-399-other", "cp38 --abi abi3", "manylinux2014_"),
        ("cpython-399-other-linux-musl", "cp38 --abi abi3", "musllinux_1_2_"),
        ("cpython-399t-other", "cp38t", "manylinux2014_"),
    ],
)
def test_without_uv_and_pip_the_servers_own_pip_supplies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abi: str, tags: str, platform: str
) -> None:
    monkeypatch.setattr(interpreters, "find_uv", lambda: None)
    monkeypatch.setattr(prepare, "SERVER_PYTHON", script(tmp_path / "server", _PIP))
    python = lacking(abi=abi)._replace(
        path=script(tmp_path / "python", '#!/bin/sh\ntouch "$5/half"; exit 1\n'), version=(3, 8, 18)
    )

    directory = prepare.prepare_support_directory(
        python, EnvironmentCache(str(tmp_path)), Reports()
    )

    words = Path(directory, "asked").read_text()
    assert ["asked"] == [path.name for path in Path(directory).iterdir()]
    assert f"--python-version 3.8 --implementation cp --abi {tags} --abi none" in words
    assert f"--platform {platform}" in words
    assert ("musllinux" in words) != ("manylinux" in words)


@contextlib.contextmanager
def package_index(tmp_path: Path) -> Iterator[str]:
    """Yield the address of an index that has `greeting`, until it is gone."""
    wheel(tmp_path / "index" / "greeting")
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path / "index")
    )
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def foreign_python(monkeypatch: pytest.MonkeyPatch, index: str) -> interpreters.Interpreter:
    """A Python that lacks `greeting`, and the index that all are to ask."""
    monkeypatch.setattr(prepare, "_PROJECTS", {"greeting": "greeting"})
    for name, value in {
        **{"UV_DEFAULT_INDEX": index, "UV_HTTP_RETRIES": "0"},
        **{"PIP_INDEX_URL": index, "PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull},
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    own = interpreters.server_interpreter()
    return own._replace(missing_modules=("greeting",), abi="cpython-399-other")


@pytest.mark.row("B13")
def test_without_a_network_uv_supplies_what_it_has_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    with package_index(tmp_path) as index:
        python = foreign_python(monkeypatch, index)
        prepare.prepare_support_directory(python, EnvironmentCache(str(tmp_path / "1")), Reports())
    said = Reports()

    offline = EnvironmentCache(str(tmp_path / "2"))
    directory = prepare.prepare_support_directory(python, offline, said)

    assert "VERSION = '1.0'\n" == Path(directory, "greeting.py").read_text()
    assert any("tries again with what it has cached" in text for text in said.texts)


@pytest.mark.row("B13")
@pytest.mark.parametrize(
    "installer",
    [
        "uv",
        # pip tries again for seconds
        pytest.param(
            "pip",
            marks=pytest.mark.long(
                "standard/environments/test_prepare.py::"
                "test_without_a_network_and_a_cache_the_reason_says_what_helps"
            ),
        ),
    ],
)
def test_without_a_network_and_a_cache_the_reason_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer: str
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    with package_index(tmp_path) as index:
        python = foreign_python(monkeypatch, index)
    if installer == "pip":
        monkeypatch.setattr(interpreters, "find_uv", lambda: None)
    cache = EnvironmentCache(str(tmp_path / "cache"))

    text = refusal(InternalError, prepare.prepare_support_directory, python, cache, Reports())
    for part in (
        "no package index can be reached",
        "Connection refused",
        "zmqtriton-ctl env prepare",
    ):
        assert part in text

    # As it says, a directory of wheels will do; what failed has left nothing behind.
    monkeypatch.setenv(f"{installer.upper()}_FIND_LINKS", str(tmp_path / "index" / "greeting"))
    directory = prepare.prepare_support_directory(python, cache, Reports())
    assert "VERSION = '1.0'\n" == Path(directory, "greeting.py").read_text()


def test_what_is_not_missing_is_not_supplied(tmp_path: Path) -> None:
    environment = prepare_environment(
        EnvironmentSpec(INTERPRETER), EnvironmentCache(str(tmp_path)), Reports()
    )

    assert Environment(sys.executable) == environment


# ---------------------------------------------------------------- requirements


def wheel(folder: Path, version: str = "1.0") -> None:
    write_wheel(folder, "greeting", f"VERSION = '{version}'\n", version)


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    wheel(tmp_path / "wheels")
    wheel(tmp_path / "wheels", "2.0")
    path = tmp_path / "requirements.txt"
    path.write_text("--no-index\n--find-links wheels\n-c bounds.txt\ngreeting\n")
    (tmp_path / "bounds.txt").write_text("greeting<2\n")
    return path


def installed(root: str) -> list[str]:
    return sorted(path.name for path in Path(root).glob("lib/python*/site-packages/greeting-*"))


def test_requirements_are_built_once_for_their_content(
    tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, said, base = (
        EnvironmentCache(str(tmp_path / "cache")),
        Reports(),
        interpreters.server_interpreter(),
    )
    first = build_environment(str(requirements), base, cache, said)
    assert any("Building an environment for" in text for text in said.texts)
    assert ["V"] == [level for level, text in said.lines if "greeting==1.0" in text]
    assert any("greeting==1.0" in step.title for step in said.steps)
    monkeypatch.setattr(interpreters, "find_uv", lambda: None)

    again = build_environment(str(requirements), base, cache, said)
    (tmp_path / "bounds.txt").write_text("greeting>=2\n")
    with pytest.raises(InternalError) as refused:
        build_environment(str(requirements), base, cache, said)

    assert first == again
    assert ["greeting-1.0.dist-info"] == installed(first)
    assert refused.value.text == (
        f"Building an environment for {requirements} needs uv. Install it with: "
        f"{sys.executable} -m pip install uv"
    )


def test_a_pyproject_is_built_as_it_says(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "model"\nversion = "1"\ndependencies = ["greeting"]\n'
        "[tool.uv]\nno-index = true\nfind-links = ['wheels']\n"
    )
    demand = EnvironmentSpec(REQUIREMENTS, str(tmp_path / "pyproject.toml"))

    environment = prepare_environment(demand, EnvironmentCache(str(tmp_path / "cache")), Reports())

    assert ["greeting-1.0.dist-info"] == installed(environment.root)
    assert environment.support_directory


@pytest.mark.long("standard/environments/test_prepare.py::test_a_pyproject_is_built_as_it_says")
def test_a_lock_beside_a_pyproject_is_kept_to(tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "model"\nversion = "1"\nrequires-python = ">=3.8"\n'
        'dependencies = ["greeting"]\n[tool.uv]\nno-index = true\nfind-links = ["wheels"]\n'
    )
    interpreters.run(
        [str(interpreters.find_uv()), "lock"], "lock", Reports(), directory=str(tmp_path)
    )
    wheel(tmp_path / "wheels", "2.0")
    demand = EnvironmentSpec(REQUIREMENTS, str(tmp_path / "pyproject.toml"))

    environment = prepare_environment(demand, EnvironmentCache(str(tmp_path / "cache")), Reports())

    assert ["greeting-1.0.dist-info"] == installed(environment.root)


def test_uvs_last_lines_are_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("--no-index\nnobody-has-this\n")

    with pytest.raises(InternalError) as refused:
        build_environment(
            str(path),
            interpreters.server_interpreter(),
            EnvironmentCache(str(tmp_path / "cache")),
            Reports(),
        )

    assert refused.value.text.startswith(f"Building an environment for {path} failed: ")
    assert "nobody-has-this was not found" in " ".join(refused.value.text.split())
