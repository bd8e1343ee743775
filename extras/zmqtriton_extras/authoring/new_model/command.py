"""Reads the command line of `zmqtriton new`, writes the files, and says what to type next.

Nothing is overwritten: if one of the files exists, nothing is written.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zmqtriton.sdk.models import load_config
from zmqtriton.sdk.process import Hook, addons, load_reference
from zmqtriton.sdk.wire import ZmqTritonError, datatypes
from zmqtriton_extras.authoring.example import run_example
from zmqtriton_extras.authoring.new_model.chat import chat_curl, chat_texts
from zmqtriton_extras.authoring.new_model.client_code import client_text, curl_text
from zmqtriton_extras.authoring.new_model.draft import TYPES, Draft, Kind, TensorSpec, read_tensor
from zmqtriton_extras.authoring.new_model.model_code import config_text, model_text
from zmqtriton_extras.authoring.new_model.unit_tests import test_text

#: Writes the files for one form of `zmqtriton new`. The offer's name is that form: `WORD --OPTION`,
#: or `NAME`.
FORM = Hook[Callable[[list[str]], int]]("new.form")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_DIRECTORY = "models"
_INPUT, _OUTPUT = "X:FP32:-1", "Y:FP32:-1"


def run_new(words: list[str]) -> int:
    """Run the command and return the exit status."""
    if words[:1] == ["--from"]:
        return run_example(words[1:])
    for form, reference in FORM.named_in(addons.offers()).items():
        word, _, option = form.partition(" ")
        is_name = len(words) == 1 and words[0].isidentifier()
        if (
            is_name
            if not option
            else word in words[:1] and any(w.startswith(option) for w in words)
        ):
            return int(load_reference(reference)(words[bool(option) :]))
    arguments = _parser().parse_args(words)
    try:
        draft = _draft(arguments)
        _write(files := _files(draft, arguments.directory))
    except (ValueError, ZmqTritonError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(_guide(draft, arguments.directory, list(files)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zmqtriton new",
        description="Write a first model, which can be served, tested and asked as it is. By its "
        "name alone it is a function. With any option it is a class: config.pbtxt and model.py, "
        "and, in the current directory, its test and a client.",
        epilog="`zmqtriton new --from NAME DIRECTORY` writes an example, which `zmqtriton example "
        "--help` lists. `zmqtriton new test --from CAPTURES --model NAME` writes a test of "
        f"captured requests. Types are {', '.join(TYPES)}, and STRING for BYTES. DIMS are sizes "
        "with commas between them, without that of a batch; -1, the default, is any size.",
    )
    parser.add_argument("name", metavar="NAME", help="name of the model")
    parser.add_argument(
        "--directory",
        "-d",
        default=_DIRECTORY,
        metavar="DIRECTORY",
        help=f"directory of the models (default: {_DIRECTORY})",
    )
    for option, default in (("input", _INPUT), ("output", _OUTPUT)):
        parser.add_argument(
            f"--{option}",
            action="append",
            default=[],
            metavar="NAME:TYPE[:DIMS]",
            help=f"an {option}; may be repeated (default: {default})",
        )
    parser.add_argument(
        "--class",
        action="store_true",
        help="write a class with these files, as all other options do",
    )
    parser.add_argument(
        "--max-batch-size",
        type=int,
        metavar="N",
        help="execute up to N requests together (default: 0, each alone)",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--decoupled", action="store_true", help="answer each request with a stream of responses"
    )
    kinds.add_argument(
        "--bls",
        metavar="MODEL",
        help="call MODEL, which is in the directory; inputs and outputs are those of MODEL",
    )
    kinds.add_argument(
        "--sequence",
        action="store_true",
        help="remember sequences of requests that belong together",
    )
    kinds.add_argument(
        "--chat",
        action="store_true",
        help="continue chats with pieces of text, for OpenAI's clients",
    )
    return parser


def _draft(arguments: argparse.Namespace) -> Draft:
    name = arguments.name
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"'{name}': a model's name has letters, digits, _ and -, and begins with a letter"
        )
    if arguments.chat:
        _refuse_tensors(arguments, "--chat", "OpenAI's chats")
        return Draft(name, Kind.CHAT, (), ())
    if arguments.bls:
        return _calling_draft(arguments)
    size = arguments.max_batch_size or 0
    if size < 0:
        raise ValueError(f"--max-batch-size must be 0 or more, got {size}")
    other = Kind.SEQUENCE if arguments.sequence else Kind.PLAIN
    kind = Kind.DECOUPLED if arguments.decoupled else other
    inputs = _tensors(arguments.input or [_INPUT])
    outputs = _tensors(arguments.output or [_OUTPUT])
    return Draft(name, kind, inputs, outputs, size)


def _tensors(words: list[str]) -> tuple[TensorSpec, ...]:
    tensors = tuple(map(read_tensor, words))
    names = [tensor.name.lower() for tensor in tensors]
    for tensor in tensors:
        if names.count(tensor.name.lower()) > 1:
            raise ValueError(
                f"'{tensor.name}' is given twice, apart from capitals: choose another name"
            )
    return tensors


def _calling_draft(arguments: argparse.Namespace) -> Draft:
    """Return a model with the inputs and outputs of the one that it calls."""
    _refuse_tensors(arguments, "--bls", "the model that is called")
    callee, directory = arguments.bls, Path(arguments.directory) / arguments.bls
    if not directory.is_dir():
        raise ValueError(f"{directory} is not there; make it first: zmqtriton new {callee}")
    config = load_config(callee, directory, directory / "config.pbtxt", auto_complete=False)
    if config.model_transaction_policy.decoupled or config.HasField("sequence_batching"):
        raise ValueError(f"'{callee}' must be a model that answers each request once, by itself")
    return Draft(
        arguments.name,
        Kind.BLS,
        tuple(map(_configured_tensor, config.input)),
        tuple(map(_configured_tensor, config.output)),
        config.max_batch_size,
        callee,
    )


def _refuse_tensors(arguments: argparse.Namespace, option: str, whose: str) -> None:
    if arguments.input or arguments.output or arguments.max_batch_size is not None:
        raise ValueError(
            f"with {option} inputs, outputs and the size of batches are those of {whose}; leave "
            "out --input, --output and --max-batch-size"
        )


def _configured_tensor(entry: Any) -> TensorSpec:
    type_name = entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    datatype = datatypes.BY_CONFIG_NAME[type_name[entry.data_type].name]
    dims = ",".join(map(str, entry.dims))
    return read_tensor(f"{entry.name}:{datatype.name}:{dims}")


def _files(draft: Draft, directory: str) -> dict[Path, str]:
    """Return the texts of the files by their paths."""
    model = Path(directory) / draft.name
    places = (
        model / "config.pbtxt",
        model / "1" / "model.py",
        Path(f"test_{draft.name}.py"),
        Path(f"client_{draft.name}.py"),
    )
    texts = (
        chat_texts(draft.name, directory)
        if draft.kind is Kind.CHAT
        else (
            config_text(draft),
            model_text(draft),
            test_text(draft, directory),
            client_text(draft),
        )
    )
    return dict(zip(places, texts, strict=True))


def _write(files: dict[Path, str]) -> None:
    first = next(iter(files))
    for path in (first.parent, *files):
        if path.exists():
            raise ValueError(f"{path} is there already, nothing was written: choose another name")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _guide(draft: Draft, directory: str, files: list[Path]) -> str:
    config, model, test, client = files
    width = max(map(len, map(str, files))) + 2
    is_chat = draft.kind is Kind.CHAT
    serve = f"zmqtriton run {model.parent.parent} --reload{' --allow-openai' * is_chat}"
    protocol = "grpc" if draft.kind is Kind.DECOUPLED else "http"
    needs = "openai" if is_chat else f"'tritonclient[{protocol}]'"
    line = chat_curl(draft.name) if is_chat else curl_text(draft)
    curl = f"  {line}\n" if line else ""
    return f"""
{config!s:{width}} inputs, outputs and settings
{model!s:{width}} the code
{test!s:{width}} a test, which needs no server
{client!s:{width}} a client

Test it (needs: pip install pytest), then serve it; --reload loads it again when it is saved:

  pytest {test}
  {serve}

Ask it from another terminal (the client needs: pip install {needs}):

{curl}  python {client}

"""
