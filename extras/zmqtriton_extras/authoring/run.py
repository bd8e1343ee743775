"""Reads the command line of `zmqtriton run`, and serves the model that it names.

Nothing is copied: the server reads the file, or the directory, where it lies.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from zmqtriton.sdk.models import check_sources, models_in, pbtxt, scan
from zmqtriton.sdk.process import Hook, addons, read_options
from zmqtriton.sdk.process import options as server_options
from zmqtriton.sdk.supervisor import OpenedServer
from zmqtriton.sdk.wire import ZmqTritonError, datatypes, signature
from zmqtriton_extras.authoring.new_model.client_code import curl_text
from zmqtriton_extras.authoring.new_model.draft import Draft, Kind, TensorSpec

#: Gets a model's name, its configuration and the options, and yields pairs of a path and the JSON
#: of a POST. `zmqtriton run` prints these requests instead of one with tensors.
REQUESTS = Hook[
    Callable[[str, Mapping[str, Any], server_options.Options], Iterable[tuple[str, str]]]
]("run.requests")
_EVERYWHERE = ("0.0.0.0", "::", "[::]")


def guide(name: str, options: server_options.Options, port: int, config: Mapping[str, Any]) -> str:
    """Return the text about a served model; without a configuration the model was not loaded."""
    word = shlex.quote(name)
    if not config:
        again = "save it again" if options.value("reload") else f"{ctl_command()} load {word}"
        return (
            f"\n{name} is not served yet: the lines above say why. When it is repaired: {again}\n\n"
        )
    host = "localhost" if options.http_address in _EVERYWHERE else options.http_address
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    url = f"{'https' if options.http_use_ssl else 'http'}://{host}:{port}"
    lines = "".join(f"  {line}\n" for line in _requests(name, config, url, port, options))
    load = f"{ctl_command()} load --server {port} {word}"
    after = (
        "It is loaded again whenever its files are saved."
        if options.value("reload")
        else f"After a change `{load}` loads it again."
    )
    ask = f"In another terminal:\n\n{lines}\n" if lines else ""
    return f"\n{name} is served. {ask}A browser finds it on {url}. {after} Ctrl-C stops it.\n\n"


def _requests(
    name: str, config: Mapping[str, Any], url: str, port: int, options: server_options.Options
) -> Iterable[str]:
    server = url.removeprefix("http://")
    if lines := [
        f"curl -sN {shlex.quote(server + path)} -d {shlex.quote(text)}"
        if path
        else text.replace("{url}", url)
        for requests in REQUESTS.all_of(addons.offers())
        for path, text in requests(name, config, options)
    ]:
        return lines
    draft = _draft(name, config)
    lines = [curl_text(draft, server)]
    if draft.kind is Kind.PLAIN:
        lines.append(f"{ctl_command()} infer --server {port} {shlex.quote(name)} --zeros")
    return filter(None, lines)


def _draft(name: str, config: Mapping[str, Any]) -> Draft:
    """Return the facts of a model's configuration that example requests depend on."""
    is_decoupled = config.get("model_transaction_policy", {}).get("decoupled")
    inputs = config.get("input", [])
    needed = [entry for entry in inputs if not entry.get("optional")] or inputs
    return Draft(
        name,
        Kind.DECOUPLED
        if is_decoupled
        else Kind.SEQUENCE
        if "sequence_batching" in config
        else Kind.PLAIN,
        tuple(_with_example(config, _tensor(entry)) for entry in needed),
        tuple(map(_tensor, config.get("output", []))),
        int(config.get("max_batch_size", 0)),
    )


def _tensor(entry: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(
        entry["name"], datatypes.BY_CONFIG_NAME[entry["data_type"]], tuple(map(int, entry["dims"]))
    )


def _with_example(config: Mapping[str, Any], tensor: TensorSpec) -> TensorSpec:
    """Return the tensor with an example text that its model can read, if the model reads JSON."""
    example = signature.EXAMPLE.first_of(addons.offers()) if tensor.is_text else None
    text = example(config, tensor.name) if example else ""
    return tensor._replace(text=text) if text else tensor


_CLASS = "TritonPythonModel"
_AUTO_COMPLETE = b"auto_complete_config"
_NEW = "'zmqtriton new NAME' writes a model to begin with"


def check_file(path: Path) -> str:
    """Return why the file cannot be served, as a sentence; "" if no obstacle is known."""
    if not path.is_file():
        return f"there is no file {path}; {_NEW}"
    if path.suffix != ".py":
        return f"{path} is no Python file: its name does not end with .py"
    if path.stem in sys.stdlib_module_names:
        return f"{path} has the name of a module of Python, '{path.stem}'; give it another one"
    if models_in(path)[1]:
        return ""  # its backend reads it
    for fact in check_sources([path])[path]:
        if fact.kind in ("syntax", "problem"):
            return _sentence(path, fact.kind, fact.line, fact.text)
    if scan.find_config(path.parent) is None and _AUTO_COMPLETE not in path.read_bytes():
        return (
            f"{path} does not say what its inputs and outputs are: it needs the method "
            f"auto_complete_config, or a config.pbtxt beside it; {_NEW}"
        )
    return ""


def _sentence(path: Path, kind: str, line: int, text: str) -> str:
    where = f"{path}:{line}" if line else f"{path}"
    if kind == "problem" and _CLASS in text:
        return f"{where}: there is no class {_CLASS}; {text.partition('; ')[2] or _NEW}"
    return f"{where}: {text}"


def ctl_command() -> str:
    """Return the words that call zmqtriton-ctl: its name, or its path where no shell finds it."""
    if shutil.which(_CTL):
        return _CTL
    path = Path(sys.prefix, "bin", _CTL)
    if not path.exists():
        return f"{shlex.quote(sys.executable)} -m zmqtriton.ctl.main"
    is_below = path.is_relative_to(Path.cwd())
    return shlex.quote(os.path.relpath(path) if is_below else str(path))


def configured_name(path: Path) -> str:
    """Return the name in the configuration next to the file, or ""."""
    config_path = scan.find_config(path.parent)
    try:
        return str(pbtxt.read_config(config_path, may_have_more=True).name) if config_path else ""
    except ZmqTritonError:
        return ""  # the load says what is wrong with it


_PYTHON_FILE = "model.py"
_CTL = "zmqtriton-ctl"
_RELOAD, _REPOSITORY = "--reload", "--model-repository="
#: Only this machine can connect, unless other addresses are chosen.
ADDRESSES = ("--http-address=127.0.0.1", "--grpc-address=127.0.0.1")
_NAME = re.compile(r"\w[\w.-]*")


class RunError(Exception):
    """Raised if there is no model to serve; the text is for the user of the command."""


def run_model(words: list[str]) -> int:
    """Run the command and return the exit status."""
    arguments, others = _parser().parse_known_args(words)
    try:
        names, of_model = _find_models(arguments.model, arguments.name)
    except (RunError, ZmqTritonError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    words = [*of_model, *_usual_options(names, of_model[0], others), *others]
    options = read_options(words, ADDRESSES)
    if isinstance(options, int):
        return options
    # only now: an error need not load the server
    from zmqtriton.sdk.supervisor import run

    return run(options, on_open=partial(_show_guides, names, options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zmqtriton run",
        usage="zmqtriton run MODEL [--name NAME] [--reload] [options of the server]",
        description="Serve one model on 127.0.0.1, without a repository, and print requests to "
        "try. MODEL is a Python file with a TritonPythonModel or with functions, or a model's "
        "directory. Hints of functions, auto_complete_config of the model, or a config.pbtxt "
        "beside the file, name inputs and outputs. All options of the server may follow; "
        "--reload loads the model again whenever its files are saved.",
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", type=Path, help="file or directory")
    parser.add_argument(
        "--name", default="", help="name for a file's model (default: the file's own)"
    )
    return parser


def _find_models(path: Path, name: str) -> tuple[Sequence[str], list[str]]:
    """Return the names of the models, and the options that serve them. Raises RunError."""
    if path.is_dir():
        path = path.absolute()
        if not (path / _PYTHON_FILE).is_file() or scan.scan_model(path, path.parent).versions:
            return _find_directory(path, name)
        path, name = path / _PYTHON_FILE, name or path.name
    if problem := check_file(path):
        raise RunError(problem)
    name = name or configured_name(path)
    functions = () if name else models_in(path)[1]
    names = functions or (name or path.stem,)
    if unfit := [each for each in names if not _NAME.fullmatch(each)]:
        text = f"'{unfit[0]}' is no name for a model: it may have letters, digits, _ . and -"
        raise RunError(text)
    if functions:
        return names, [f"{_REPOSITORY}{path}"]
    return names, [f"--model-file={names[0]}={path}"]


def _find_directory(path: Path, name: str) -> tuple[Sequence[str], list[str]]:
    if not scan.is_model_directory(path):
        raise RunError(
            f"{path} is no model; if it has models in it, zmqtriton {_REPOSITORY}{path} serves them"
        )
    if name not in ("", path.name):
        raise RunError(f"the model in {path} is called '{path.name}'; --name is for files")
    return (path.name,), [f"{_REPOSITORY}{path.parent}"]


def _usual_options(names: Iterable[str], of_model: str, words: list[str]) -> list[str]:
    """Return options for a developer; options that the user types override them."""
    usual: list[str] = []
    typed = {word.partition("=")[0] for word in words}
    is_repository = of_model.startswith(_REPOSITORY) and of_model.endswith(".py")
    if "--model-control-mode" not in typed and is_repository and _RELOAD in typed:
        # follows functions that are added to the file or removed from it
        usual += ["--model-control-mode=poll", "--repository-poll-secs=1"]
    elif "--model-control-mode" not in typed:
        # the models beside it are there for whoever asks: itself, by BLS
        loads = [f"--load-model={name}" for name in names]
        usual += ["--model-control-mode=explicit", *loads, "--load-on-demand"]
    if _RELOAD in typed:
        # the next save may repair what cannot be loaded now
        usual.append("--exit-on-error=false")
    return usual


def _show_guides(
    names: Iterable[str], options: server_options.Options, server: OpenedServer
) -> None:
    for name in names:
        config = server.serving_config(name, -1)
        text = guide(name, options, server.http_port or 0, config)
        if config and server.http_port is None:
            text = f"\n{name} is served, but not over HTTP, for which requests are shown.\n\n"
        sys.stdout.write(text)
    sys.stdout.flush()
