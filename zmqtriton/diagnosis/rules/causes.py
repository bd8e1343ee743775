"""The meaning of each kind of reason, and what helps: one table, a row for each kind.

Exceptions and logs of models and libraries differ in their texts alone: `Words` has the meaning of
some of them. Scarce resources of a machine have advice as well. Does no I/O.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from zmqtriton.diagnosis.facts.places import Frame, place_in
from zmqtriton.findings import Finding
from zmqtriton_floor.reasons import Kind, Reason

_RESTART = "zmqtriton-ctl restart {model}"
#: Command that loads a model with new files; a restart of its processes does not.
_RELOAD = "zmqtriton-ctl reload {model}"
_LOAD = "zmqtriton-ctl load {model}"
_LOGS = "zmqtriton-ctl logs {model}"
_STATUS = "zmqtriton-ctl status {model}"
_INFER = "zmqtriton-ctl infer {model} --zeros"
_ENVIRONMENT = "zmqtriton-ctl env prepare {model}"
_SHORTAGES = {
    "cpu": (
        "Give the server a larger share: CPUWeight= of systemd, `docker run --cpu-shares`, "
        "resources.requests.cpu of Kubernetes; or move the other programs.",
        "top",
    ),
    "memory": (
        "The kernel drops pages and reads them again: give the machine more memory, or unload "
        "models.",
        "zmqtriton-ctl top",
    ),
    "io": (
        "Loads and starts take longer; requests only of models that read or write files.",
        "iostat -x 1",
    ),
    "loop": (
        "A process did work for which others had to wait: a defect, or a file system that is slow. "
        "Please report its longest_turn, which has more of the place.",
        "zmqtriton-ctl status --json",
    ),
}


class Words(NamedTuple):
    """A pattern, and what it means: with its groups as {0}, {1} ..., the place as {at}."""

    pattern: str
    text: str
    advice: str
    commands: tuple[str, ...]


_KNOWN = (
    Words(
        r"No module named '([^']*)'",
        "cannot import '{0}'{at}: the module is missing in its environment",
        "List it in {model}/requirements.txt, and start the server with --build-environments; or "
        "have it in the archive of EXECUTION_ENV_PATH, or install it into the server's Python.",
        (_RESTART,),
    ),
    Words(
        r"(lib[^\s:]+\.so[^\s:]*): cannot open shared object file",
        "a library of the system is missing: {0}{at}",
        "Install the system's package that has it, such as libgomp1 of Debian for libgomp.so.1.",
        (_RESTART,),
    ),
    Words(
        r"(ImportError: .*)",
        "an import fails: {0}{at}",
        "A library is missing or of another version than the model expects.",
        (_LOGS, _RESTART),
    ),
    Words(
        r"((?:Syntax|Indentation|Tab)Error: .*)",
        "its code cannot be read: {0}",
        "Correct model.py; `zmqtriton check DIRECTORY` shows the line.",
        (_RESTART,),
    ),
    Words(
        r"'NoneType' object has no attribute '(as_numpy|is_cpu|to_dlpack|shape)'",
        "it asks for .{0} of a tensor that is not there{at}",
        "The name of the tensor is wrong, or a model that it calls has failed: look at has_error() "
        "and error().message() of each response before its tensors.",
        (_LOGS, _RELOAD),
    ),
    Words(
        r"Too many open files",
        "a process has no file descriptors left: Too many open files{at}",
        "Raise `ulimit -n` (LimitNOFILE= of systemd), or close files in the model.",
        (_LOGS, _RELOAD),
    ),
    Words(
        r"(max_segment_bytes)",
        "its tensors need more shared memory than max_segment_bytes allows",
        "Raise the quota, or send smaller tensors.",
        (_STATUS, _RELOAD),
    ),
    Words(
        r"CUDA out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY",
        "the memory of the GPU is exhausted{at}",
        "Use fewer instances or smaller batches, or unload another model of that GPU.",
        ("nvidia-smi", _STATUS),
    ),
    Words(
        r"(CUDA_ERROR_\w+): all work",
        "the GPU gives it nothing but {0}, which only a new process gets over",
        "A kernel uses memory that is not its own, or the GPU is at fault. With "
        "CUDA_LAUNCH_BLOCKING=1 the first error in its log names the place.",
        (_LOGS, "nvidia-smi"),
    ),
    Words(
        r"(MemoryError.*)",
        "it has no memory left: {0}{at}",
        "Give the machine more memory, or the model less to hold.",
        (_LOGS, _RESTART),
    ),
    Words(
        r"asks for it in its initialize and would wait for itself",
        "its initialize loads a model that waits for it",
        "Load that model elsewhere: models that load each other wait for ever.",
        (_LOGS, _RESTART),
    ),
    Words(
        r"BLS calls would deadlock: (.*)",
        "deadlock: models call each other and wait for ever ({0})",
        "Let no model call itself, not by way of others either. Where such calls come to an end, "
        "another instance of each model that is called again is enough.",
        ("zmqtriton-ctl scale {model} 2", "zmqtriton-ctl stacks {model}"),
    ),
    Words(
        r"BdbQuit",
        "its code stops at a breakpoint(){at}, and a server has no terminal for a debugger",
        "Remove it. `zmqtriton.testing.load_model` runs model.py in a program of your own, where a "
        "debugger works.",
        (_RELOAD,),
    ),
    Words(
        r"InferenceRequest\(s\) size is:(\d+), and InferenceResponse\(s\) size is:(\d+)",
        "the list that its execute() returns has {1} responses, and there are {0} requests",
        "execute() returns a list with an InferenceResponse for each request, in the same order.",
        (_RELOAD,),
    ),
    Words(
        r"model\.py does not implement `execute` method",
        "its class has no method execute()",
        "Write `def execute(self, requests)`, which returns a list with an InferenceResponse for "
        "each request.",
        (_RELOAD,),
    ),
    Words(
        r"failed to run warmup sample '([^']*)': ([^\n]*)",
        "its warm-up has failed with the sample '{0}': {1}{at}",
        "Correct that sample of model_warmup in config.pbtxt, or model.py.",
        (_LOGS, _RESTART),
    ),
    Words(
        r"\A(?:\w+(?: \w+)?: )?\[request id: <id_unknown>\] ([^\n]*)",
        "a sample of its warm-up does not fit its configuration: {0}",
        "Correct model_warmup in config.pbtxt: a sample has each input, with its type and shape.",
        (_RESTART,),
    ),
    Words(
        r"\[ONNXRuntimeError\] : \d+ : ([^\n]*)",
        "ONNX Runtime refuses it: {0}",
        "Correct the file, or install an ONNX Runtime that knows its version.",
        (_LOGS, _RESTART),
    ),
    Words(
        r"The model let go of a request without a response",
        "its execute() has neither returned a response to the request nor kept its sender",
        "A `return` may be missing: execute() returns a list with an InferenceResponse for each "
        "request; a decoupled model sends by get_response_sender().",
        (_RELOAD,),
    ),
    Words(
        r"PermissionError: (.*)",
        "it may not: {0}{at}",
        "Give the user of the models (--stub-user, if set) the right to use that file, and to "
        "enter the directories above it.",
        (_LOGS, _RESTART),
    ),
    # any exception, where there is nothing else than the text: this one is the last
    Words(
        r"\b((?:\w+\.)*\w*(?:Error|Exception|Exit)\b(?::[^\n]*)?)",
        "it raises {0}{at}",
        "Correct the model, or what it needs there.",
        (_LOGS, _RESTART),
    ),
)
_COMPILED = tuple((re.compile(words.pattern), words) for words in _KNOWN)


def _explain_words(model: str, text: str, at: str, *, is_any: bool) -> Finding | None:
    """Return a finding that explains a known error text of a model or a library, or None.

    With `is_any` any other exception has a general explanation.
    """
    for pattern, words in _COMPILED[: None if is_any else -1]:
        match = pattern.search(text)
        if match is not None:
            meaning = words.text.format(*match.groups(), at=at)
            return Finding.error(meaning, words.advice.format(model=model), *words.commands)
    return None


def first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0] if lines else ""


class Row(NamedTuple):
    """The explanation of a kind of reason.

    The texts have the values of the kind by name; and the model as {model}, the place in its code
    as {at}, the first line of the reason's text as {text}, and the explanation of the cause as
    {cause}.
    """

    text: str
    #: Advice of this kind; "" to show the advice and the commands of the cause.
    advice: str = ""
    commands: tuple[str, ...] = ()
    #: True if the text is of a model or a library: a known explanation of it comes first.
    has_words: bool = False


_CORRECT_CONFIG = "Correct the model's config.pbtxt; `zmqtriton check DIRECTORY` finds all errors."
_NOTHING_WRONG = "Nothing is wrong."
_COMES_BACK = "It is started again by itself; the log says more."
ROWS: Mapping[Kind, Row] = {
    Kind.OTHER: Row("{text}", "The log may say more.", (_LOGS,), has_words=True),
    # ------------------------------------------------------------- it is not to serve
    Kind.UNLOADED: Row(
        "an operator or a client has unloaded it",
        "Nothing is wrong. Load it if it is needed.",
        (_LOAD,),
    ),
    Kind.AWAITS_REQUEST: Row(
        "it sleeps: it is loaded on demand, by its first request",
        "Nothing is wrong. Ask it, or load it if it should be ready from the start.",
        (_INFER, _LOAD),
    ),
    Kind.IDLE: Row(
        "it sleeps: it was unloaded after {idle_s:g} s without requests",
        "Nothing is wrong. The next request loads it; --unload-idle-after says how soon it sleeps.",
        (_INFER,),
    ),
    Kind.EVICTED: Row(
        "it was evicted: memory was needed ({purpose})",
        "The next request loads it again. Raise --model-memory-budget if that happens too often.",
        ("zmqtriton-ctl status",),
    ),
    Kind.DRAINING: Row(
        "it is drained: it finishes what it has and is announced as not ready",
        "An operator has asked for that, or the server stops; this takes it back.",
        ("zmqtriton-ctl undrain {model}",),
    ),
    Kind.SERVER_STOPS: Row(
        "the server stops", "Nothing is loaded any more.", ("zmqtriton-ctl servers",)
    ),
    Kind.GUEST_LEFT: Row(
        "the program that has bound it has ended",
        "Start that program again; it binds the model.",
        ("zmqtriton-ctl status",),
    ),
    # ------------------------------------------------------------- around another reason
    Kind.LAST_LOAD_FAILED: Row("the last load failed, the earlier version serves: {cause}"),
    Kind.OTHER_VERSION_FAILED: Row(
        "version {versions} could not be loaded",
        "All versions of a load serve, or none does.",
        (_LOGS, _RESTART),
    ),
    Kind.STUB_LOST: Row("{cause}"),
    Kind.RESTARTING: Row("{cause}"),
    Kind.GIVEN_UP: Row("given up after {deaths} deaths in a row{again}: {cause}"),
    Kind.MEMBER_NOT_LOADED: Row("its member '{member}' is not loaded: {cause}"),
    Kind.MEMBER_NOT_READY: Row("its member '{member}' is not ready: {cause}"),
    # ------------------------------------------------------------- repositories
    Kind.DUPLICATE: Row(
        "two repositories have a model of this name",
        "Remove or rename one of the two directories, then load it.",
        (_RESTART,),
    ),
    Kind.NOT_FOUND: Row(
        "no repository has a model '{model}'",
        "Add its directory to a repository, or correct the name.",
        ("zmqtriton-ctl models",),
    ),
    Kind.NO_VERSION: Row(
        "it has no version to serve",
        "Put model.py in a directory with a number, as in {model}/1/model.py, and look at "
        "version_policy.",
        (_RESTART,),
    ),
    Kind.FILE_MISSING: Row(
        "its file {path} is missing",
        "Put the file there, or name another one by default_model_filename.",
        (_RESTART,),
    ),
    Kind.FILE_SPECIAL: Row("{text}", "Put a regular file in its place.", (_RESTART,)),
    Kind.REPOSITORY_SILENT: Row(
        "its repository {repository} does not answer",
        "Its file system may hang: the server asks again, and goes on with what it has loaded.",
        ("zmqtriton-ctl doctor",),
    ),
    # ------------------------------------------------------------- configuration
    Kind.CONFIG_UNREADABLE: Row(
        "config.pbtxt, line {line}: {detail}", _CORRECT_CONFIG, (_RESTART,)
    ),
    Kind.CONFIG_WRONG: Row("its configuration is wrong: {text}", _CORRECT_CONFIG, (_RESTART,)),
    Kind.DIRECTORY_NAME: Row(
        "its config.pbtxt calls it '{configured}', its directory '{directory}'",
        "Remove the line `name` from config.pbtxt, or rename the directory.",
        (_RESTART,),
    ),
    Kind.BACKEND_UNKNOWN: Row(
        "there is no backend '{backend}'",
        'Correct `backend` in config.pbtxt; a model in Python has "python".',
        (_RESTART,),
    ),
    Kind.GPU_MISSING: Row(
        "it asks for a GPU that this machine does not have",
        "Correct instance_group, as in `kind: KIND_CPU`, or look why the GPU is not seen: "
        "`nvidia-smi`, CUDA_VISIBLE_DEVICES.",
        (_RESTART,),
    ),
    Kind.GPU_FULL: Row(
        "GPU {gpu} is fuller than --model-load-gpu-limit allows",
        "Unload another model of that GPU, or raise the limit.",
        ("nvidia-smi", "zmqtriton-ctl models --ready"),
    ),
    Kind.TOO_MANY_INSTANCES: Row(
        "it asks for {instances} instances, and {limit} are allowed",
        "Correct `count` in instance_group.",
        (_RESTART,),
    ),
    Kind.TOO_FEW_DESCRIPTORS: Row(
        "there are too few file descriptors for its instances: {text}",
        "Raise `ulimit -n` (LimitNOFILE= of systemd) and restart the server, or configure fewer "
        "instances.",
        ("zmqtriton-ctl status",),
    ),
    # ------------------------------------------------------------- environment
    Kind.ENVIRONMENT_MISSING: Row(
        "its environment does not exist: {path}",
        "Correct EXECUTION_ENV_PATH in config.pbtxt, or put the archive there.",
        (_RESTART,),
    ),
    Kind.ENVIRONMENT_FAILED: Row(
        "its environment cannot be made: {problem}",
        "Correct requirements.txt or the archive; this shows the whole output:",
        (_ENVIRONMENT, _RESTART),
    ),
    Kind.INTERPRETER_MISSING: Row(
        "the Python that it names is not here: {text}",
        "Correct PYTHON_EXECUTABLE in its config.pbtxt, or install that Python.",
        (_RESTART,),
    ),
    Kind.INTERPRETER_FORBIDDEN: Row(
        "its Python {action}: {problem}",
        "That user must be allowed to read it and to enter each directory on the way, also behind "
        "links: `namei -l {python}` shows their rights.",
        (_RESTART,),
    ),
    Kind.INTERPRETER_BROKEN: Row(
        "its Python cannot start: {problem}",
        "Run `{python} -c 1` as the user of the models to see it; a Python that was moved, or "
        "whose environment was, must be installed or packed again.",
        (_RESTART,),
    ),
    # ------------------------------------------------------------- the model
    Kind.EXCEPTION: Row(
        "it raises {exception}: {message}{at}",
        "Correct the model, or what it needs there.",
        (_LOGS, _RESTART),
        has_words=True,
    ),
    # ------------------------------------------------------------- the end of a process
    Kind.EXITED: Row(
        "its process ends itself, with status {status}{at}",
        "Something in it calls exit(); the last lines of its log come before.",
        (_LOGS, _RESTART),
        has_words=True,
    ),
    Kind.CRASHED: Row(
        "it crashes in native code, {text}{at}",
        "A library that the model uses is broken, or of another version than it expects.",
        (_LOGS, _RESTART),
    ),
    Kind.KILLED: Row(
        "somebody has killed it ({signal})",
        "Nobody in the server did. Look into the kernel's log for the memory: `dmesg`.",
        (_LOGS, _RESTART),
    ),
    Kind.REGION_TRUNCATED: Row(
        "a client has truncated shared memory that it had mapped: {regions}",
        "Clients keep a region as long as it is registered. The model reads copies of these from "
        "now on.",
        (_LOGS,),
    ),
    Kind.OUT_OF_MEMORY: Row(
        "the kernel has killed it: the machine or container is out of memory",
        "Give it more memory, use fewer instances, or unload other models; max_memory_bytes "
        "keeps one model from taking all.",
        (_STATUS, _RESTART),
    ),
    Kind.OVER_MEMORY_QUOTA: Row(
        "it needs more memory than its quota: max_memory_bytes is {limit}",
        "Raise max_memory_bytes, or find out what the model keeps.",
        (_STATUS, _LOGS, _RELOAD),
    ),
    Kind.NOT_STARTED: Row("{text}", "The log may say more.", (_LOGS,), has_words=True),
    Kind.LOAD_TIMEOUT: Row(
        "loading took longer than max_load_seconds, {limit_s:g} s{at}",
        "Raise max_load_seconds if it only needs longer; the line says where it was.",
        (_LOGS, _RESTART),
    ),
    Kind.EXECUTION_TIMEOUT: Row(
        "a request took longer than max_execution_seconds, {limit_s:g} s{at}",
        "Raise max_execution_seconds if it only needs longer; the line says where it was.",
        (_LOGS, _RELOAD),
    ),
    Kind.FINALIZE_TIMEOUT: Row(
        "its finalize took longer than {limit_s:g} s", "The log says what it did.", (_LOGS,)
    ),
    Kind.EXIT_TIMEOUT: Row(
        "its process did not end when it should: {text}", "The log may say more.", (_LOGS,)
    ),
    Kind.FROZEN: Row("a signal has stopped its process, so it was killed", _COMES_BACK, (_LOGS,)),
    Kind.CONNECTION_LOST: Row(
        "its connection to the broker has ended, so it was killed", _COMES_BACK, (_LOGS,)
    ),
    Kind.RESTARTED: Row("an operator has restarted it", _NOTHING_WRONG, (_STATUS,)),
    Kind.REPLACED_LATE: Row(
        "it was drained, and had not finished in time", _NOTHING_WRONG, (_STATUS,)
    ),
}
#: Finding for an entry without a reason.
_UNKNOWN = Finding.error("the server gives no reason", "The log may say more.", _LOGS)


def explain_reason(model: str, reason: Reason | None, prefix: str = "") -> Finding:
    """Explain a reason of the server behind a prefix; repeat an unknown reason."""
    finding = _UNKNOWN if reason is None else _explain(model, reason)
    return _typed(finding, model, prefix)


def explain_text(model: str, text: str, prefix: str) -> Finding:
    """Explain a failed request by its lines in the log."""
    return explain_reason(model, Reason.of(Kind.OTHER, text), prefix)


def explain_known(model: str, text: str, prefix: str) -> Finding | None:
    """Explain the answer to a request, if its text is known."""
    finding = _explain_words(model, text, place_in(text), is_any=False)
    return finding and _typed(finding, model, prefix)


def _typed(finding: Finding, model: str, prefix: str) -> Finding:
    """Return a finding with the model in its commands, as a shell takes it."""
    commands = tuple(command.format(model=shlex.quote(model)) for command in finding.commands)
    return replace(finding, text=f"{prefix}{finding.text}", commands=commands)


def _explain(model: str, reason: Reason) -> Finding:
    """Return the explanation; its commands still have {model} in them."""
    row = ROWS.get(reason.kind) or ROWS[Kind.OTHER]  # type: ignore[call-overload]
    if row.has_words:
        said, is_any = reason.values.get("output", reason.text), reason.kind == Kind.OTHER
        if finding := _explain_words(model, said, _place(reason), is_any=is_any):
            return finding
    cause = _UNKNOWN if reason.cause is None else _explain(model, reason.cause)
    retry_after_s = reason.values.get("retry_after_s", 0.0)
    words = {
        "model": model,
        "text": first_line(reason.text),
        "at": _place(reason),
        "again": f", tried again every {retry_after_s:g} s" if retry_after_s else "",
        "cause": cause.text,
        **{name: _in_a_line(value) for name, value in reason.values.items()},
    }
    text = row.text.format(**words)
    if not row.advice:
        return replace(cause, text=text)
    return Finding.error(text, row.advice.format(**words), *row.commands)


def _in_a_line(value: Any) -> Any:
    """Return a value of a reason; the lines of a text become one line."""
    return "; ".join(map(str.strip, value.splitlines())) if isinstance(value, str) else value


def _place(reason: Reason) -> str:
    """Return the place in the model, as in ` (model.py, line 8, in initialize)`; "" if unknown."""
    if not reason.values.get("file"):
        return place_in(reason.text)
    file, line, function = (reason.values[key] for key in ("file", "line", "function"))
    return Frame.text_of(file, line, function)


def judge_processes(rows: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Return a finding about each process of the server that does not do its work."""
    for row in rows:
        if row.get("is_silent"):
            yield Finding.error(
                row["text"],
                "It waits for something, such as a file system, or for its turn on a busy machine. "
                "If it stays silent, end it: the server starts another.",
                f"kill -9 {row['pid']}",
                "zmqtriton-ctl status",
            )
        else:
            yield Finding.error(
                row["text"],
                "The other processes serve. The log has the reason; once it is gone, the server "
                "starts the process by itself, within half a minute.",
                "zmqtriton-ctl logs",
                "zmqtriton-ctl status",
            )


def judge_places(paths: Iterable[str]) -> Iterator[Finding]:
    """Explain each place of models that does not answer the server."""
    for path in paths:
        yield explain_reason("", Reason.of(Kind.REPOSITORY_SILENT, "", repository=path))


def judge_pressure(rows: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Return warnings of scarce resources; each row has a `resource` and a `text`."""
    for row in rows:
        advice, command = _SHORTAGES[row["resource"]]
        yield Finding.warning(row["text"], advice, command)
