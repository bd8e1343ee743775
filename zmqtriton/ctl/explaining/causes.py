"""The meaning of the server's reasons, and what helps: one table, special patterns first.

A reason is what the index says of a version, the last words of an instance, or a line of the log.
Does no I/O.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

_RESTART = "zmqtriton-ctl restart {model}"
_LOAD = "zmqtriton-ctl load {model}"
_LOGS = "zmqtriton-ctl logs {model}"
_STACKS = "zmqtriton-ctl stacks {model}"
_STATUS = "zmqtriton-ctl status {model}"
_ENVIRONMENT = "zmqtriton-ctl env prepare {model}"


class Explanation(NamedTuple):
    """A cause in a line, what to do about it, and the commands to type."""

    text: str
    advice: str
    commands: tuple[str, ...] = ()


class _Cause(NamedTuple):
    pattern: str
    #: With the groups of the pattern as {0}, {1} ..., the model as {model} and the place as {at}.
    text: str
    advice: str
    commands: tuple[str, ...]


_CORRECT_CONFIG = "Correct the model's config.pbtxt; `zmqtriton check DIRECTORY` finds all errors."
_CAUSES = (
    # ------------------------------------------------------------- not asked to be there
    _Cause(
        r"^unloaded$",
        "an operator or a client has unloaded it",
        "Nothing is wrong. Load it if it is needed.",
        (_LOAD,),
    ),
    _Cause(
        r"^not loaded: unloaded (after [\d.]+ s without requests)",
        "it sleeps: it was unloaded {0}",
        "Nothing is wrong. The next request loads it; --unload-idle-after says how soon it sleeps.",
        ("zmqtriton-ctl infer {model} --zeros",),
    ),
    _Cause(
        r"^not loaded: unloaded (.*)",
        "it was evicted: memory was needed ({0})",
        "The next request loads it again. Raise --model-memory-budget if that happens too often.",
        ("zmqtriton-ctl status",),
    ),
    _Cause(
        r"^not loaded: waits for its first request",
        "it sleeps: it is loaded on demand, by its first request",
        "Nothing is wrong. Ask it, or load it if it should be ready from the start.",
        ("zmqtriton-ctl infer {model} --zeros", _LOAD),
    ),
    _Cause(
        r"^draining",
        "it is drained: it finishes what it has and is announced as not ready",
        "An operator has asked for that, or the server stops; this takes it back.",
        ("zmqtriton-ctl undrain {model}",),
    ),
    # ------------------------------------------------------------- repositories
    _Cause(
        r"two or more repositories|not unique across all model repositories",
        "two repositories have a model of this name",
        "Remove or rename one of the two directories, then load it.",
        (_RESTART,),
    ),
    _Cause(
        r"'([^']*)'[^']*model not found in any model repository",
        "no repository has a model '{0}'",
        "Add its directory to a repository, or correct the name.",
        ("zmqtriton-ctl models",),
    ),
    _Cause(
        r"unexpected directory name '([^']*)' for model '([^']*)'",
        "its config.pbtxt calls it '{1}', its directory '{0}'",
        "Remove the line `name` from config.pbtxt, or rename the directory.",
        (_RESTART,),
    ),
    _Cause(
        r"at least one version must be available under the version policy",
        "it has no version to serve",
        "Put model.py in a directory with a number, as in {model}/1/model.py, and look at "
        "version_policy.",
        (_RESTART,),
    ),
    _Cause(
        r"version (\d+) is specified for model .* version directory is not present",
        "version_policy asks for version {0}, which has no directory",
        "Add the directory, or correct version_policy.",
        (_RESTART,),
    ),
    _Cause(
        r"model file not found in '([^']*)'",
        "its file {0} is missing",
        "Put the file there, or name another one by default_model_filename.",
        (_RESTART,),
    ),
    # ------------------------------------------------------------- configuration
    _Cause(
        r"unable to find backend library for backend '([^']*)'",
        "there is no backend '{0}'",
        'Correct `backend` in config.pbtxt; a model in Python has "python".',
        (_RESTART,),
    ),
    _Cause(
        r"unsupported gpu id|instance group .* GPU|no GPU|GPUs with at least",
        "it asks for a GPU that this machine does not have",
        "Correct instance_group, as in `kind: KIND_CPU`, or look why the GPU is not seen: "
        "`nvidia-smi`, CUDA_VISIBLE_DEVICES.",
        (_RESTART,),
    ),
    _Cause(
        r"memory limit set for GPU (\d+) has exceeded",
        "GPU {0} is fuller than --model-load-gpu-limit allows",
        "Unload another model of that GPU, or raise the limit.",
        ("nvidia-smi", "zmqtriton-ctl models --ready"),
    ),
    _Cause(
        r"the limit of open files allows .*",
        "there are too few file descriptors for its instances: {whole}",
        "Raise `ulimit -n` (LimitNOFILE= of systemd) and restart the server, or configure fewer "
        "instances.",
        ("zmqtriton-ctl status",),
    ),
    _Cause(
        r"Too many open files",
        "a process has no file descriptors left: Too many open files{at}",
        "Raise `ulimit -n` (LimitNOFILE= of systemd), or close files in the model.",
        (_LOGS,),
    ),
    _Cause(
        r"asks for (\d+) instances, the limit is (\d+)",
        "it asks for {0} instances, and {1} are allowed",
        "Correct `count` in instance_group.",
        (_RESTART,),
    ),
    # ------------------------------------------------------------- environment
    _Cause(
        r"canonical path for (.*?)\.?$",
        "its environment does not exist: {0}",
        "Correct EXECUTION_ENV_PATH in config.pbtxt, or put the archive there.",
        (_RESTART,),
    ),
    _Cause(
        r"(.*) cannot be prepared (.*)",
        "its environment cannot be made: {0} {1}",
        "Correct requirements.txt or the archive; this shows the whole output:",
        (_ENVIRONMENT, _RESTART),
    ),
    _Cause(
        r"The interpreter (\S+) (cannot be run|cannot see its packages): (Permission denied .*)",
        "its Python {1}: {2}",
        "That user must be allowed to read it and to enter each directory on the way, also of what "
        "links lead to: `namei -l {0}` shows who may.",
        (_LOAD,),
    ),
    _Cause(
        r"The interpreter (\S+) (?:cannot be run|does not work): (.*)",
        "its Python cannot start: {1}",
        "Run `{0} -c 1` as the user of the models to see it; a Python that was moved, or whose "
        "environment was, must be installed or packed again.",
        (_LOAD,),
    ),
    _Cause(
        r"No module named '([^']*)'",
        "cannot import '{0}'{at}: the module is missing in its environment",
        "List it in {model}/requirements.txt (with --build-environments), or have it in the "
        "archive of EXECUTION_ENV_PATH, or install it into the server's Python.",
        (_RESTART,),
    ),
    _Cause(
        r"(ImportError: .*)",
        "an import fails: {0}{at}",
        "A library is missing or of another version than the model expects.",
        (_LOGS, _RESTART),
    ),
    _Cause(
        r"((?:Syntax|Indentation|Tab)Error: .*)",
        "its code cannot be read: {0}",
        "Correct model.py; `zmqtriton check DIRECTORY` shows the line.",
        (_RESTART,),
    ),
    # ------------------------------------------------------------- memory and time
    _Cause(
        r"(max_segment_bytes)",
        "its tensors need more shared memory than max_segment_bytes allows",
        "Raise the quota, or send smaller tensors.",
        (_STATUS,),
    ),
    _Cause(
        r"it (?:used|needed).*?(\d+) bytes \(max_memory_bytes\)",
        "it needs more memory than its quota: max_memory_bytes is {0}",
        "Raise max_memory_bytes, or find out what the model keeps.",
        (_STATUS, _LOGS),
    ),
    _Cause(
        r"CUDA out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY",
        "the memory of the GPU is exhausted{at}",
        "Use fewer instances or smaller batches, or unload another model of that GPU.",
        ("nvidia-smi", _STATUS),
    ),
    _Cause(
        r"by the kernel: out of memory",
        "the kernel has killed it: the machine or container is out of memory",
        "Give it more memory, use fewer instances, or unload other models; max_memory_bytes "
        "keeps one model from taking all.",
        (_STATUS, _RESTART),
    ),
    _Cause(
        r"(MemoryError.*)",
        "it has no memory left: {0}{at}",
        "Give the machine more memory, or the model less to hold.",
        (_LOGS, _RESTART),
    ),
    _Cause(
        r"took longer than max_load_seconds \(([\d.]+)\)",
        "loading took longer than max_load_seconds, {0} s{at}",
        "Raise max_load_seconds if it only needs longer; the line says where it was.",
        (_LOGS, _RESTART),
    ),
    # ------------------------------------------------------------- other models
    _Cause(
        r"asks for it in its initialize and would wait for itself",
        "its initialize loads a model that waits for it",
        "Load that model elsewhere: models that load each other wait for ever.",
        (_LOGS,),
    ),
    _Cause(
        r"(?:BLS calls would deadlock): (.*)",
        "deadlock: models call each other and wait for ever ({0})",
        "Give the called model another instance, or let no model call itself.",
        ("zmqtriton-ctl scale {model} 2", _STACKS),
    ),
    # ------------------------------------------------------------- deaths
    _Cause(
        r"(killed by SIG(?:SEGV|ABRT|BUS|ILL|FPE)[^\n]*)",
        "it crashes in native code, {0}{at}",
        "A library that the model uses is broken, or of another version than it expects.",
        (_LOGS, _RESTART),
    ),
    _Cause(
        r"killed by SIGKILL",
        "somebody has killed it (SIGKILL)",
        "Nobody in the server did. Look into the kernel's log for the memory: `dmesg`.",
        (_LOGS, _RESTART),
    ),
    _Cause(
        r"exited with status (\d+)",
        "its process ends itself, with status {0}{at}",
        "Something in it calls exit(); the last lines of its log come before.",
        (_LOGS, _RESTART),
    ),
    _Cause(
        r"PermissionError: (.*)",
        "it may not: {0}{at}",
        "Give the user of the models (--stub-user, if set) the right to use that file.",
        (_LOGS, _RESTART),
    ),
    # ------------------------------------------------------------- configuration, anything else
    _Cause(
        r"config\.pbtxt:(\d+):\d+: ([^\n]*)",
        "config.pbtxt, line {0}: {1}",
        _CORRECT_CONFIG,
        (_RESTART,),
    ),
    _Cause(
        r"^(?:Invalid argument: )?([^\n]*) \((?:at|in) [^\n]*config\.pbtxt(?::(\d+))?\)",
        "its configuration is wrong: {whole}",
        _CORRECT_CONFIG,
        (_RESTART,),
    ),
    _Cause(
        r"\b((?:\w+\.)*\w*(?:Error|Exception|Exit)\b(?::[^\n]*)?)",
        "it raises {0}{at}",
        "Correct the model, or what it needs there.",
        (_LOGS, _RESTART),
    ),
)
_COMPILED = tuple((re.compile(cause.pattern, re.MULTILINE), cause) for cause in _CAUSES)
_PLACE = re.compile(r"At:\s+(\S+?)\((\d+)\): ([\w<>.]+)")
_GIVEN_UP = re.compile(r"\(given up after (\d+) deaths(?:, tried again every ([\d.]+) s)?\)")
_STILL_SERVED = re.compile(r"still served, the last load failed: ")
_DEPENDENCY = re.compile(r"depends on '([^']*)' which has no loaded version")
_SUGGESTION = re.compile(r"Did you mean '([^']*)'\?")


def missing_member(reason: str) -> str:
    """Return the model that an ensemble lacks; "" if that is not the reason."""
    found = _DEPENDENCY.search(reason)
    return found[1] if found else ""


def suggested_name(reason: str) -> str:
    """Return the name that the server believes was meant, or ""."""
    found = _SUGGESTION.search(reason)
    return found[1] if found else ""


def is_still_served(reason: str) -> bool:
    """Return True if an older load serves, because the last one failed."""
    return _STILL_SERVED.match(reason) is not None


def explain_reason(model: str, reason: str) -> Explanation:
    """Explain a reason of the server; one that is unknown is repeated."""
    found = _match(model, reason)
    if given_up := _GIVEN_UP.search(reason):
        tried = f", tried again every {given_up[2]} s" if given_up[2] else ""
        text = f"given up after {given_up[1]} deaths in a row{tried}: {found.text}"
        found = found._replace(text=text)
    if is_still_served(reason):
        found = found._replace(
            text=f"the last load failed, what served before serves: {found.text}"
        )
    return found


def _match(model: str, reason: str) -> Explanation:
    for pattern, cause in _COMPILED:
        match = pattern.search(reason)
        if match is not None:
            words = {"model": model, "at": _place(reason), "whole": _first_line(reason)}
            groups = [group or "" for group in match.groups()]
            return Explanation(
                _fill(cause.text, groups, words),
                _fill(cause.advice, groups, words),
                _commands(cause.commands, model),
            )
    return Explanation(
        _first_line(reason) or "the server gives no reason",
        "The log may say more.",
        _commands((_LOGS,), model),
    )


def _fill(template: str, groups: Sequence[str], words: dict[str, str]) -> str:
    return template.format(*groups, **words)


def _commands(templates: Sequence[str], model: str) -> tuple[str, ...]:
    return tuple(template.format(model=shlex.quote(model)) for template in templates)


def _place(reason: str) -> str:
    """Return the place in the model, as in ` (model.py, line 8, in initialize)`; "" if unknown."""
    found = _PLACE.search(reason)
    if found is None:
        return ""
    file, line, function = found[1].rpartition("/")[2], found[2], found[3]
    where = "" if function.startswith("<") else f", in {function}"
    return f" ({file}, line {line}{where})"


def _first_line(reason: str) -> str:
    lines = reason.strip().splitlines()
    return lines[0] if lines else ""
