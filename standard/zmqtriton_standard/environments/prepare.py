"""Makes the environment that a model asks for; may take minutes.

Called in the child process of the supervisor and by `zmqtriton-ctl env prepare`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, Any

from zmqtriton.sdk.models import Environment, EnvironmentSpec
from zmqtriton.sdk.process import StepProgress
from zmqtriton.sdk.wire import InternalError
from zmqtriton_standard.environments import interpreters
from zmqtriton_standard.environments.cache import ARCHIVES, BUILT, SUPPORT, EnvironmentCache
from zmqtriton_standard.environments.reports import Reporter
from zmqtriton_standard.environments.unpack import ArchiveLimits, environment_root, unpack

# ------------------------------------------------------ from requirements, with uv

_INCLUDE_LINE = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]+(\S+)", re.M)
_LOCK_FILE = "uv.lock"


def build_environment(
    requirements: str, base: interpreters.Interpreter, cache: EnvironmentCache, reporter: Reporter
) -> str:
    """Return the root of the environment.

    The environment is kept, so a load that finds it needs neither uv nor the network.
    """
    name = _digest(requirements, base)
    if cache.is_ready(BUILT, name) and not os.access(
        Environment.interpreter_in(str(cache.tree_path(BUILT, name))), os.X_OK
    ):
        cache.invalidate(BUILT, name)  # the interpreter that it was built on is gone
    return str(
        cache.get_or_create(
            BUILT,
            name,
            f"{requirements} with {base.executable}",
            lambda new: _install_requirements(new, requirements, base, reporter),
            reporter,
        )
    )


def _digest(requirements: str, base: interpreters.Interpreter) -> str:
    digest = hashlib.sha256(base.identity.encode(errors="surrogateescape"))
    for path in _requirement_files(Path(requirements), set()):
        content = path.read_bytes()
        digest.update(f"\n{path.name} {len(content)}\n".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:32]


def _requirement_files(path: Path, seen: set[Path]) -> Iterator[Path]:
    """Return a file of requirements and the files that it includes, except web addresses."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    yield path
    if path.suffix == ".toml":
        yield from _requirement_files(path.with_name(_LOCK_FILE), seen)
        return
    for name in _INCLUDE_LINE.findall(path.read_text(errors="replace")):
        yield from _requirement_files((path.parent / name).resolve(), seen)


def _install_requirements(
    tree: Path, requirements: str, base: interpreters.Interpreter, reporter: Reporter
) -> None:
    uv = interpreters.find_uv()
    if uv is None:
        raise InternalError(
            f"Building an environment for {requirements} needs uv. Install it with: "
            f"{sys.executable} -m pip install uv"
        )
    reporter.log("I", f"Building an environment for {requirements} with {base.path}")
    what = f"Building an environment for {requirements}"
    folder = os.path.dirname(requirements)
    venv = [uv, "venv", "--quiet", "--no-project", "--allow-existing", "--python", base.path]
    interpreters.run([*venv, str(tree)], what, reporter, directory=folder)
    python = Environment.interpreter_in(str(tree))
    locked = os.path.join(folder, _LOCK_FILE)
    if requirements.endswith(".toml") and os.path.exists(locked):
        exported = str(tree / "exported-requirements.txt")
        command = [uv, "export", "--quiet", "--frozen", "--no-emit-project", "--no-dev"]
        command += ["--python", python, "--output-file", exported]
        interpreters.run(command, what, reporter, directory=folder)
        requirements = exported
    interpreters.install_with_uv(
        uv,
        ["--python", python, "--requirement", requirements],
        what,
        reporter,
        directory=folder,
    )


# ---------------------- the modules that stubs need and the model's Python lacks

#: module -> project
_PROJECTS = {"zmq": "pyzmq", "msgpack": "msgpack", "numpy": "numpy"}
_TIMEOUT_S = 600
_FREE_THREADED = re.compile(r"cpython-[0-9]+t")
#: Interpreter of the server. Its pip installs for interpreters that have none, without uv.
SERVER_PYTHON = sys.executable


def prepare_support_directory(
    interpreter: interpreters.Interpreter, cache: EnvironmentCache, reporter: Reporter
) -> str:
    """Return the directory of missing support modules, or "" if none is missing.

    There is a directory for each kind of Python and each set of missing modules. It comes last on
    the module path, so modules of the environment come first. For Pythons like the server's own it
    is a copy of the server's modules. For others it is installed, which needs the network once, or
    uv's cache: by uv or, without uv, by the environment's own pip or the server's. Raises an error
    that says what to do if it cannot be made.
    """
    if not interpreter.missing_modules:
        return ""
    kind = _kind(interpreter)
    name = "-".join((kind, *interpreter.missing_modules))
    source = f"{', '.join(_projects(interpreter))} for {kind}"
    if not cache.is_ready(SUPPORT, name):
        lacking = ", ".join(interpreter.missing_modules)
        reporter.log("I", f"{interpreter.path} lacks {lacking}; preparing them once for {kind}")

    def fill(tree: Path) -> None:
        reporter.progress(StepProgress(f"Copying {source}"))
        if not _copy_server_packages(interpreter, tree):
            _install(interpreter, tree, reporter)

    return str(cache.get_or_create(SUPPORT, name, source, fill, reporter))


def _projects(interpreter: interpreters.Interpreter) -> list[str]:
    return [_PROJECTS[module] for module in interpreter.missing_modules]


def _kind(interpreter: interpreters.Interpreter) -> str:
    number = "{}.{}".format(*interpreter.version)
    name = f"{interpreter.implementation}-{number}-{interpreter.abi}-{interpreter.platform}"
    return "".join(c if c.isalnum() or c in "-._" else "_" for c in name)


def _copy_server_packages(interpreter: interpreters.Interpreter, tree: Path) -> bool:
    """Copy the server's own modules, but not its other packages; False if they do not fit."""
    own = interpreters.server_interpreter()
    if own.missing_modules or _kind(own) != _kind(interpreter):
        return False
    try:
        distributions = [distribution(project) for project in _projects(interpreter)]
    except PackageNotFoundError:
        return False
    return all([_copy_distribution(one, tree) for one in distributions])


def _copy_distribution(project: Distribution, tree: Path) -> bool:
    copied = 0
    for file in project.files or ():
        source = Path(str(project.locate_file(file)))
        is_plain = ".." not in file.parts and "__pycache__" not in file.parts
        if is_plain and not file.is_absolute() and source.is_file():
            target = tree / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            copied += file.suffix == ".py"
    return copied > 0


def _install(interpreter: interpreters.Interpreter, tree: Path, reporter: Reporter) -> None:
    failures: list[str] = []
    for install in _installers(interpreter, tree, reporter):
        try:
            install()
            return
        except InternalError as error:
            failures.append(error.text)
            for left in tree.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    raise InternalError(_refusal(interpreter, failures))


def _refusal(interpreter: interpreters.Interpreter, failures: list[str]) -> str:
    text = (
        f"The Python environment of {interpreter.path} lacks the module "
        f"'{interpreter.missing_modules[0]}', which every model needs. Install it with: "
        f"{interpreter.path} -m pip install {' '.join(_projects(interpreter))}"
    )
    if any(map(interpreters.is_unreachable, failures)):
        text += (
            "; no package index can be reached, and they were not installed in advance, which "
            "'zmqtriton-ctl env prepare' does where there is a network. UV_FIND_LINKS or "
            "PIP_FIND_LINKS can name a directory of wheels"
        )
    return f"{text} ({'; '.join(failures)})"


def _installers(
    interpreter: interpreters.Interpreter, tree: Path, reporter: Reporter
) -> Iterator[Callable[[], None]]:
    """Yield functions that install the support packages into `tree`, the best way first."""
    projects = _projects(interpreter)
    what = f"Installing {', '.join(projects)}"
    more: dict[str, Any] = {"directory": str(tree), "within_s": _TIMEOUT_S}
    wheels = ["--target", str(tree), "--only-binary", ":all:"]
    uv = interpreters.find_uv()
    if uv is not None:
        arguments = ["--python", interpreter.path, *wheels, "--no-config", *projects]
        yield partial(interpreters.install_with_uv, uv, arguments, what, reporter, **more)
        return
    for pip, tags in (
        ([interpreter.path, "-I", "-m", "pip"], []),
        ([SERVER_PYTHON, "-m", "pip"], _tags(interpreter)),
    ):
        command = [
            *pip,
            "install",
            *wheels,
            "--no-warn-script-location",
            "--disable-pip-version-check",
            "--no-input",
            *tags,
            *projects,
        ]
        yield partial(interpreters.run, command, what, reporter, **more)


def _tags(interpreter: interpreters.Interpreter) -> list[str]:
    """Return pip's options to install for another Python than its own."""
    machine = interpreter.platform.partition("-")[2].replace("-", "_")
    platforms = [f"linux_{machine}"]
    if interpreter.abi.endswith("-musl"):
        platforms += [f"musllinux_1_{minor}_{machine}" for minor in (1, 2)]
    else:
        platforms.append(f"manylinux2014_{machine}")
        platforms += [f"manylinux_2_{minor}_{machine}" for minor in range(17, _glibc_minor() + 1)]
    number = "{}.{}".format(*interpreter.version)
    tag = "cp" + number.replace(".", "")
    # a free-threaded Python, whose ABI has a t behind its number, takes none of the stable ABI
    abis = [f"{tag}t", "none"] if _FREE_THREADED.match(interpreter.abi) else [tag, "abi3", "none"]
    return [
        "--python-version",
        number,
        "--implementation",
        "cp",
        *(part for abi in abis for part in ("--abi", abi)),
        *(part for platform in platforms for part in ("--platform", platform)),
    ]


def _glibc_minor() -> int:
    """Return the minor version of the C library, or the oldest that wheels are made for."""
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        library = ""
    match = re.search(r"2\.(\d+)", library)
    return int(match[1]) if match else 17


# --------------------------------------------------------------- any environment

#: conda-unpack rewrites every file that holds a path.
_CONDA_UNPACK_TIMEOUT_S = 600


def prepare_environment(
    demand: EnvironmentSpec, cache: EnvironmentCache, reporter: Reporter
) -> Environment:
    """Prepare an environment. Raises a ZmqTritonError that names cause and cure."""
    if demand.kind == "directory":
        reporter.log(
            "I",
            "Returning canonical path since EXECUTION_ENV_PATH does not contain compressed path. "
            f"Path: {demand.path}",
        )
        environment = _environment_at(demand.path)
    elif demand.kind == "archive":
        environment = _environment_at(_unpack_archive(demand.path, cache, reporter))
    else:
        environment = Environment(interpreters.find_interpreter(demand.python))
    if demand.kind == "requirements":
        environment = _environment_at(
            build_environment(demand.path, interpreters.probe(environment), cache, reporter)
        )
    if environment.root:
        reporter.log("I", f"Using Python execution env {environment.root}")
        _warn_of_scripts(environment.root, reporter)
    support = prepare_support_directory(interpreters.probe(environment), cache, reporter)
    return environment._replace(support_directory=support, user=demand.user)


def _warn_of_scripts(root: str, reporter: Reporter) -> None:
    folder = Path(root, "etc", "conda", "activate.d")
    names = sorted(path.name for path in folder.glob("*.sh"))
    if names:
        reporter.log(
            "W",
            f"the scripts in {folder} are not run: {', '.join(names)}. What they set must be in "
            "the server's environment",
        )


def _environment_at(root: str) -> Environment:
    is_conda = os.path.isdir(os.path.join(root, "conda-meta"))
    return Environment(Environment.interpreter_in(root), root, is_conda=is_conda)


def _unpack_archive(path: str, cache: EnvironmentCache, reporter: Reporter) -> str:
    """Unpack an archive and return the root of its environment."""
    with _open_archive(path) as file:
        before = os.fstat(file.fileno())
        name = cache.file_digest(file, path, reporter)

        def fill(tree: Path) -> None:
            reporter.log("I", f"Extracting Python execution env {path}")
            unpack(path, file, tree, reporter, ArchiveLimits())
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise InternalError(
                    f"The archive {path} was changed while it was unpacked; load again when its "
                    "copy is complete"
                )
            _run_conda_unpack(environment_root(tree), reporter)

        tree = cache.get_or_create(ARCHIVES, name, path, fill, reporter)
    root = str(environment_root(tree))
    if not os.access(Environment.interpreter_in(root), os.X_OK):
        cache.invalidate(ARCHIVES, name)  # the interpreter that it leads to is gone
    Environment.check_directory(root)
    return root


def _open_archive(path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise InternalError(
            f"The archive {path} cannot be read, check its path and rights: {error.strerror}"
        ) from error


def _run_conda_unpack(root: Path, reporter: Reporter) -> None:
    """Run conda-unpack, which replaces the old path in files by the new one."""
    Environment.check_directory(str(root))
    program = root / "bin" / "conda-unpack"
    if not program.is_file():
        return
    environment = _environment_at(str(root))
    interpreters.run(
        [environment.python, str(program)],
        f"Running {program}",
        reporter,
        variables=environment.variables(os.environ),
        within_s=_CONDA_UNPACK_TIMEOUT_S,
    )
