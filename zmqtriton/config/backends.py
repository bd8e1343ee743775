"""Finds the backend that runs a model, and the file: by the configuration, then by content.

Reads file names in the model's and the backends' directories, and the content of model.py alone: if
it declares a function, the other files are its data. Any other directory with model.onnx and
model.py is an ONNX model, as in Triton, so the order of the tables below is part of the behaviour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from zmqtriton import addons
from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton.config.files import is_name_inside, path_inside, special_file_text
from zmqtriton_floor.errors import InternalError, InvalidArgument, closest_match
from zmqtriton_floor.lazy_names import load_reference
from zmqtriton_floor.reasons import Kind
from zmqtriton_floor.settings.offers import Hook

_log = logging.getLogger(__name__)


class Package(NamedTuple):
    """The package of a backend, and its directory."""

    name: str
    directory: Path


#: Place of backends: a directory with one directory for each, or a function that finds an add-on's
#: package by the name of its backend.
BackendPlace = Path | Callable[[str], Package | None]

#: A package whose `model.py` runs each model with this backend.
BACKEND = Hook[ModuleType]("models.backend")
#: Module that a backend imports, then its packages if their names differ: "torch", or
#: "cv2 opencv-python". The offer's name is the backend. `check` uses them.
FRAMEWORK = Hook[str]("models.framework")
#: Returns the names of the models that a Python file defines without a `config.pbtxt`. The offer's
#: name is their backend.
IN_FILE = Hook[Callable[[Path], tuple[str, ...]]]("models.in_file")
#: Returns the parameters that a Python file implies for a model of it, unless its configuration has
#: them. The offer's name is the backend.
IMPLIED = Hook[Callable[[Path, str], Mapping[str, str]]]("models.implied")
PYTHON = "python"
PYTHON_FILE = "model.py"
_PYTHON_LIBRARY = "libtriton_python.so"
ENSEMBLE = "ensemble"


@dataclass(frozen=True)
class _Framework:
    """One way to recognise a backend; `platform` is "" if the backend has none."""

    backend: str
    platform: str
    filename: str
    #: True for a directory, False for a file; None for either.
    is_directory: bool | None = None


#: Frameworks in the order of their trial; python is last.
_FRAMEWORKS = (
    _Framework("tensorflow", "tensorflow_graphdef", "model.graphdef", is_directory=False),
    _Framework("tensorflow", "tensorflow_savedmodel", "model.savedmodel", is_directory=True),
    _Framework("tensorrt", "tensorrt_plan", "model.plan", is_directory=False),
    _Framework("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    _Framework("openvino", "", "model.xml"),
    _Framework("pytorch", "pytorch_libtorch", "model.pt", is_directory=False),
    _Framework("pytorch", "torch_aoti", "model.pt2", is_directory=False),
    _Framework(PYTHON, "", PYTHON_FILE),
)

#: backend -> the platforms that it may name; other backends may name any platform.
PLATFORMS: dict[str, frozenset[str]] = {
    backend: frozenset(f.platform for f in _FRAMEWORKS if f.backend == backend)
    for backend in ("tensorflow", "tensorrt", "onnxruntime", "pytorch")
}

#: Files that a version may hold in place of the default file, by backend.
_OTHER_FILES = {"pytorch": ("model.py", "model.pt2")}

#: Names that people write for backends with another name.
_SUGGESTED_BACKENDS = {
    "torchscript": "pytorch",
    "libtorch": "pytorch",
    "torch": "pytorch",
    "onnx_runtime": "onnxruntime",
    "onnx": "onnxruntime",
    "py": PYTHON,
}


class Runtime(NamedTuple):
    """The Python file of a backend."""

    file: Path
    #: The package that it lies in, if an add-on has it; else "".
    package: str = ""


def complete_backend(config: Any, model_name: str, model_dir: Path) -> None:
    """Complete name, backend, platform and default_model_filename, if the rest implies them."""
    if not config.name:
        config.name = model_name
    if config.platform == ENSEMBLE:
        return
    framework = _framework_from_config(config) or _framework_from_files(config, model_dir)
    if framework is not None:
        names_backend = bool(config.backend)
        config.backend = framework.backend
        config.platform = config.platform or framework.platform
        config.default_model_filename = config.default_model_filename or framework.filename
        if framework.backend == PYTHON and not names_backend:
            file = _first_version_entries(model_dir).get(config.default_model_filename)
            config.backend = (models_in(file)[0] if file else "") or PYTHON
    elif not (config.backend or config.platform or config.default_model_filename):
        _complete_from_model_name(config, model_name)


def complete_for_file(config: Any, file: Path) -> None:
    """Complete the configuration of a model that is one Python file, which its caller has named.

    Raises ConfigError if the configuration is for another kind of model.
    """
    backend = models_in(file)[0] or PYTHON
    for field in ("platform", "backend"):
        named = getattr(config, field)
        if named not in ("", backend):
            text = f"{field} '{named}' does not run '{file.name}', which is Python"
            raise ConfigError(Problem(text, (field,), suggestion=backend))
    config.backend = backend
    config.default_model_filename = file.name


def complete_implied(config: Any, model_dir: Path, code_file: Path | None) -> None:
    """Add the parameters that the model's Python file implies for its backend."""
    reference = IMPLIED.named_in(addons.offers()).get(config.backend)
    if reference is None:
        return
    name = config.default_model_filename or PYTHON_FILE
    file = code_file or _first_version_entries(model_dir).get(name)
    for key, value in load_reference(reference)(file, config.name).items() if file else ():
        if key not in config.parameters:
            config.parameters[key].string_value = value


def _framework_from_config(config: Any) -> _Framework | None:
    """Find the framework by backend, platform and file name.

    The most specific entry comes first.
    """
    candidates = (
        framework
        for framework in _FRAMEWORKS
        if config.backend in ("", framework.backend)
        and (
            config.platform == framework.platform
            if config.platform
            else config.default_model_filename == framework.filename
        )
    )
    # only TensorFlow has no default format: there the directory must tell
    others = () if config.backend in ("", "tensorflow") else _FRAMEWORKS
    usual = (framework for framework in others if framework.backend == config.backend)
    return next(chain(candidates, usual), None)


def _framework_from_files(config: Any, model_dir: Path) -> _Framework | None:
    if config.platform or config.default_model_filename:
        return None
    entries = _first_version_entries(model_dir)
    file = entries.get(PYTHON_FILE)
    if not config.backend and file is not None and models_in(file)[0]:
        return _FRAMEWORKS[-1]
    return next(
        (
            framework
            for framework in _FRAMEWORKS
            if config.backend in ("", framework.backend)
            and framework.filename in entries
            and framework.is_directory in (None, entries[framework.filename].is_dir())
        ),
        None,
    )


def _first_version_entries(model_dir: Path) -> dict[str, Path]:
    """Return the entries of the first version directory, by name."""
    try:
        first = min(
            entry
            for entry in model_dir.iterdir()
            if entry.is_dir() and not entry.name.startswith(".")
        )
        return {entry.name: entry for entry in first.iterdir()}
    except ValueError:
        return {}
    except OSError as error:
        raise ConfigError(f"failed to open directory {model_dir}: {error.strerror}") from error


def _complete_from_model_name(config: Any, model_name: str) -> None:
    _, dot, backend = model_name.partition(".")
    if not dot:
        raise ConfigError(
            f"Invalid model name: Could not determine backend for model '{model_name}' with no "
            "backend in model configuration. Expected model name of the form "
            "'model.<backend_name>'."
        )
    config.backend = backend
    config.default_model_filename = f"model.{backend}"


def find_model_file(
    config: Any, model_dir: Path, version: int, places: Sequence[BackendPlace] | None = None
) -> Runtime:
    """Return the Python file that runs this model; by default without a directory of backends.

    It is the model's own, or that of a backend written in Python, which opens the model's file.
    """
    backend = str(config.backend)
    searched = backend_places() if places is None else places
    if backend == PYTHON:
        _check_runtime(config, model_dir, version, searched)
        return Runtime(_python_model_file(config, model_dir, version), "")
    runtime = find_runtime(config, searched)
    if runtime is not None:
        _check_opened_file(config, model_dir, version)
        return runtime
    text = (
        f"unable to find backend library for backend '{backend}', "
        "try specifying runtime on the model configuration."
        f" {_where_backends_are(backend, searched)}"
    )
    meant = _SUGGESTED_BACKENDS.get(backend, "")
    if not meant and backend not in PLATFORMS:
        meant = closest_match(backend, [PYTHON, *PLATFORMS])
    raise ConfigError(
        Problem(
            text,
            ("backend",),
            suggestion=meant,
            kind=Kind.BACKEND_UNKNOWN,
            values={"backend": backend},
        )
    )


def _where_backends_are(backend: str, places: Sequence[BackendPlace]) -> str:
    """Return a second sentence for a backend that was not found."""
    packages = _packages(backend, places) if _is_plain_name(backend) else ()
    if present := next((place.directory for place in packages if place.directory.is_dir()), None):
        return f"A backend is a Python file, such as {present / PYTHON_FILE}."
    names = ", ".join(sorted([PYTHON, *frameworks()]))
    return f"This server has the backends {names}, and those in --backend-directory."


def backend_places(directory: str = "") -> Sequence[BackendPlace]:
    """Return the places of backends: a directory of the operator's, and the packages of add-ons."""
    return (*([Path(directory)] if directory else ()), backend_package)


@cache
def backend_package(name: str) -> Package | None:
    """Return the package of an add-on's backend; None without one, or without its files."""
    package = BACKEND.named_in(addons.offers()).get(name)
    if package is None:
        return None
    try:
        return Package(package, addons.directory_of(package))
    except (ImportError, InvalidArgument) as error:
        _log.warning("the backend '%s' of an add-on cannot be used: %s", name, error)
        return None


def frameworks() -> dict[str, tuple[str, str]]:
    """Return, by add-ons' backends, the module that a backend imports, and its packages."""
    rows = {name: text.partition(" ") for name, text in FRAMEWORK.named_in(addons.offers()).items()}
    return {name: (module, packages or module) for name, (module, _, packages) in rows.items()}


def models_in(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the backend that runs a Python file, and its models; ("", ()) for Triton's own."""
    for backend, reference in IN_FILE.named_in(addons.offers()).items():
        if models := load_reference(reference)(path):
            return backend, models
    return "", ()


def _packages(backend: str, places: Sequence[BackendPlace]) -> Iterator[Package]:
    """Yield the possible packages of a backend; one in the operator's directory has no name."""
    for place in places:
        if isinstance(place, Path):
            yield Package("", place / backend)
        elif package := place(backend):
            yield package


def find_runtime(config: Any, backend_places: Sequence[BackendPlace]) -> Runtime | None:
    """Return the Python file of the model's backend, from the first directory that has one."""
    backend, runtime = str(config.backend), str(config.runtime or PYTHON_FILE)
    is_plain = _is_plain_name(backend) and _is_plain_name(runtime)
    if not is_plain or runtime.startswith("libtriton_"):
        return None
    places = _packages(backend, backend_places)
    candidates = (Runtime(place.directory / runtime, place.name) for place in places)
    return next((candidate for candidate in candidates if candidate.file.is_file()), None)


def find_backend_environment(config: Any, backend_places: Sequence[BackendPlace]) -> str:
    """Return the archive of an environment next to the backend's Python file, or ""."""
    runtime = None if config.backend == PYTHON else find_runtime(config, backend_places)
    if runtime is None:
        return ""
    archive = runtime.file.with_name(f"pb_exec_env_{runtime.file.name}.tar.gz")
    return str(archive) if archive.is_file() else ""


def _check_opened_file(config: Any, model_dir: Path, version: int) -> None:
    """Check the file that the backend will open, as far as the configuration names it."""
    if not config.default_model_filename:
        return
    path = _path_in_repository(config, config.default_model_filename, model_dir, version)
    others = _OTHER_FILES.get(config.backend, ())
    is_known = any(framework.backend == config.backend for framework in _FRAMEWORKS)
    if is_known and not any(p.exists() for p in (path, *map(path.with_name, others))):
        meant = closest_match(path.name, sorted(p.name for p in path.parent.glob("*")))
        text = f"unable to find '{path}' for model '{config.name}'"
        raise ConfigError(Problem(text, ("default_model_filename",), suggestion=meant))


def _path_in_repository(config: Any, filename: str, model_dir: Path, version: int) -> Path:
    # Models of one repository may share a file by a link, so its root is a boundary, too.
    directory = model_dir / str(version)
    path = path_inside(directory, filename, model_dir, model_dir.parent)
    if is_name_inside(filename) and (text := special_file_text(directory / filename)):
        raise ConfigError(
            Problem(text, kind=Kind.FILE_SPECIAL, values={"path": str(directory / filename)})
        )
    if path is None:
        raise ConfigError(
            f"default_model_filename '{filename}' of model '{config.name}' must stay within "
            "the model repository"
        )
    return path


def _check_runtime(
    config: Any, model_dir: Path, version: int, backend_places: Sequence[BackendPlace]
) -> None:
    """Check the runtime.

    There is one way to run Python models, so any other library is an error.
    """
    if config.runtime in ("", _PYTHON_LIBRARY):
        return
    searched = [
        model_dir / str(version),
        model_dir,
        *(d / PYTHON for d in backend_places[:1] if isinstance(d, Path)),
    ]
    places = " ".join(f"'{place}'" for place in searched)
    text = (
        f"unable to find backend library '{config.runtime}' for model '{config.name}', searched: "
        f"{places} "
    )
    raise ConfigError(Problem(text, ("runtime",), suggestion=_PYTHON_LIBRARY))


def _is_plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _python_model_file(config: Any, model_dir: Path, version: int) -> Path:
    filename = config.default_model_filename or PYTHON_FILE
    if not filename.endswith(".py"):
        # Not an error of the configuration: in Triton it is the stub that finds it.
        raise InternalError(f"Model name must end with '.py'. Model name is \"{filename}\".")
    path = _path_in_repository(config, filename, model_dir, version)
    if not path.is_file():
        others = sorted(p.name for p in path.parent.glob("*.py"))
        meant = others[0] if len(others) == 1 else closest_match(path.name, others)
        text, values = f"Python model file not found in '{path}'", {"path": str(path)}
        raise ConfigError(Problem(text, suggestion=meant, kind=Kind.FILE_MISSING, values=values))
    return path
