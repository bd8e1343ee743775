"""Models with one fault each: what explain says of it, and how an operator follows the advice.

`python -m tests.standard.tools.advice.sentences` lists the sentences that no row has.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.standard.tools.advice.world import BATCH, BODY, World, code_of
from tests.standard.tools.system import broken_models as broken
from tests.support.waiting import eventually
from tests.support.wheels import write_wheel

CONFIG, parameter, executing = broken.CONFIG, broken.parameter, broken.executing
WORKS = code_of(broken.WORKS)
BATCHING = "max_batch_size: 8\n" + CONFIG
ANSWERS = (
    "        return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros((1, 1), "
    "np.float32))]) for _ in requests]\n"
)
_LONG = "time.sleep(100000)"


def nothing(world: World) -> None:
    """Leave all as it is."""


def serve(world: World) -> None:
    assert "" == world.load()


def asks(times: int = 2) -> Callable[[World], None]:
    def provoke(world: World) -> None:
        for _ in range(times):
            world.ask()

    return provoke


def _mend(world: World) -> None:
    """Have the model work as soon as it is loaded."""
    world.config.write_text(CONFIG)
    world.write_code(WORKS)


def _changes(old: str, new: str) -> Callable[[World], None]:
    return lambda world: world.configure(old, new)


#: Does something with the model.
Step = Callable[[World], object]


class Fault(NamedTuple):
    """A model, what explain says, and what is done about it.

    Commands that show something are typed while the fault lasts, those that change something after
    the cure.
    """

    config: str
    code: str | None
    #: Words of the cause.
    cause: str
    #: The beginning of the advice to it.
    advice: str
    #: Does what the advice says beside its commands.
    cure: Step = _mend
    #: After its load.
    provoke: Step = nothing
    load: Step = World.load_behind
    prepare: Step = nothing
    #: What nobody may read of this model.
    untrue: tuple[str, ...] = ()
    #: The fault is gone, or the figure is better.
    proof: Step = World.serves

    @property
    def is_at_load(self) -> bool:
        """True if its load fails or hangs, and no request is needed to show that."""
        return self.provoke is nothing and self.load is not serve


def model_of(body: str, before: str = "") -> str:
    return code_of(body, before)


def failing(*lines: str) -> str:
    return code_of(executing(*lines))


def initializing(*lines: str) -> str:
    return code_of(broken.initializing(*lines))


# ------------------------------------------------------------------ files


def _add_wheel(world: World) -> None:
    """List the module in requirements.txt; the server builds environments."""
    wheel = write_wheel(world.server.scratch, "nothing_here")
    (world.path / "requirements.txt").write_text(f"numpy\n{wheel}\n")


def _other_file(world: World) -> None:
    (world.path / "1" / "other.py").write_text(WORKS)
    world.add_to_config('default_model_filename: "other.py"\n')


def _make_fifo(world: World) -> None:
    world.code.unlink()
    os.mkfifo(world.code)


def _replace_fifo(world: World) -> None:
    world.code.unlink()
    world.write_code(WORKS)


def _misname_version(world: World) -> None:
    (world.path / "1").rename(world.path / "v1")


def _name_version(world: World) -> None:
    (world.path / "v1").rename(world.path / "1")


def _checked_and_mended(world: World) -> None:
    """Have `zmqtriton check DIRECTORY` show the place, as advised, and correct it."""
    assert re.search(r"(model.py|config.pbtxt):\d", world.type(f"zmqtriton check {world.path}"))
    _mend(world)


def _write_bytes(world: World) -> None:
    world.code.write_bytes(WORKS.encode() + b"\nNAME = 'caf\xe9'\n")


def _duplicate(world: World) -> None:
    shutil.copytree(world.path, world.server.directory.parent / "second" / world.name)


def _remove_duplicate(world: World) -> None:
    shutil.rmtree(world.server.directory.parent / "second" / world.name)


_FILES = {
    "import_missing": Fault(
        CONFIG,
        model_of(broken.WORKS, "import nothing_here\n"),
        "cannot import 'nothing_here' (model.py, line 4)",
        "List it in import_missing/requirements.txt",
        _add_wheel,
    ),
    "import_wrong": Fault(
        CONFIG,
        model_of(broken.WORKS, "from numpy import nothing\n"),
        "an import fails: ImportError: cannot import name 'nothing' from 'numpy'",
        "A library is missing or of another version than the model expects.",
    ),
    "syntax_wrong": Fault(
        CONFIG,
        model_of(broken.WORKS, "def broken(:\n    pass\n"),
        "its code cannot be read: SyntaxError",
        "Correct model.py; `zmqtriton check DIRECTORY` shows the line.",
        _checked_and_mended,
    ),
    "not_utf8": Fault(
        CONFIG,
        WORKS,
        "its code cannot be read: SyntaxError: (unicode error)",
        "Correct model.py; `zmqtriton check DIRECTORY` shows the line.",
        prepare=_write_bytes,
    ),
    "class_missing": Fault(
        CONFIG,
        broken.BEGIN,
        "has no attribute 'TritonPythonModel'",
        "Correct the model, or what it needs there.",
    ),
    "file_missing": Fault(
        CONFIG,
        None,
        "model.py is missing",
        "Put the file there, or name another one by default_model_filename.",
        _other_file,
    ),
    "fifo": Fault(
        CONFIG,
        WORKS,
        "is a named pipe, not a file",
        "Put a regular file in its place.",
        _replace_fifo,
        prepare=_make_fifo,
        untrue=("is missing",),
    ),
    "version_wrong": Fault(
        CONFIG,
        WORKS,
        "it has no version to serve",
        "Put model.py in a directory with a number, as in version_wrong/1/model.py",
        _name_version,
        prepare=_misname_version,
        untrue=("nobody has loaded it",),
    ),
    "config_unreadable": Fault(
        CONFIG + "max_batchsize: 3\n",
        WORKS,
        "config.pbtxt, line 5",
        "Correct the model's config.pbtxt; `zmqtriton check DIRECTORY` finds all errors.",
        _checked_and_mended,
    ),
    "config_wrong": Fault(
        CONFIG + "max_batch_size: -3\n",
        WORKS,
        "max_batch_size",
        "Correct the model's config.pbtxt; `zmqtriton check DIRECTORY` finds all errors.",
        _changes("max_batch_size: -3", "max_batch_size: 0"),
    ),
    "name_wrong": Fault(
        'name: "another"\n' + CONFIG,
        WORKS,
        "its config.pbtxt calls it 'another', its directory 'name_wrong'",
        "Remove the line `name` from config.pbtxt, or rename the directory.",
        _changes('name: "another"\n', ""),
    ),
    "backend_unknown": Fault(
        'backend: "nonsense"\n' + broken.TENSORS,
        WORKS,
        "there is no backend 'nonsense'",
        'Correct `backend` in config.pbtxt; a model in Python has "python".',
        _changes('"nonsense"', '"python"'),
    ),
    "gpu_missing": Fault(
        CONFIG + "instance_group [{ kind: KIND_GPU gpus: [7] }]\n",
        WORKS,
        "it asks for a GPU that this machine does not have",
        "Correct instance_group, as in `kind: KIND_CPU`",
        _changes("kind: KIND_GPU gpus: [7]", "kind: KIND_CPU"),
    ),
    "too_many": Fault(
        CONFIG + "instance_group [{ kind: KIND_CPU count: 900000 }]\n",
        WORKS,
        "it asks for 900000 instances",
        "Correct `count` in instance_group.",
        _changes("900000", "1"),
    ),
    "duplicated": Fault(
        CONFIG,
        WORKS,
        "two repositories have a model of this name",
        "Remove or rename one of the two directories, then load it.",
        _remove_duplicate,
        prepare=_duplicate,
    ),
    "onnx_broken": Fault(
        'backend: "onnxruntime"\n' + broken.TENSORS,
        WORKS,
        "ONNX Runtime refuses it",
        "Correct the file, or install an ONNX Runtime that knows its version.",
        lambda world: _write_onnx(world),
        prepare=lambda world: [(world.path / "1" / "model.onnx").write_bytes(b"no ONNX")],
    ),
    "caf\u00e9 au lait": Fault(
        CONFIG,
        model_of(broken.WORKS, "import nothing_here\n"),
        "cannot import 'nothing_here' (model.py, line 4)",
        "List it in caf\u00e9 au lait/requirements.txt",
    ),
}


def _write_onnx(world: World) -> None:
    onnx = __import__("onnx")
    tensors = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])
        for name in ("IN", "OUT")
    ]
    node = onnx.helper.make_node("Identity", ["IN"], ["OUT"])
    graph = onnx.helper.make_graph([node], "g", tensors[:1], tensors[1:])
    model = onnx.helper.make_model(
        graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]
    )
    onnx.save(model, str(world.path / "1" / "model.onnx"))


# ------------------------------------------------------------- environments


def _broken_requirements(world: World) -> None:
    (world.path / "requirements.txt").write_text("./no-such-wheel-1-py3-none-any.whl\n")


def _correct_requirements(world: World) -> None:
    (world.path / "requirements.txt").unlink()


_PYTHON = parameter("PYTHON_EXECUTABLE", "/no/python")
_FALSE = parameter("PYTHON_EXECUTABLE", "/bin/false")


def _run_the_python(world: World) -> None:
    """Run it as advised, which shows that it fails, and name another."""
    assert subprocess.run(["/bin/false", "-c", "1"], check=False).returncode
    world.configure("/bin/false", sys.executable)


_ENVIRONMENTS = {
    "environment_missing": Fault(
        CONFIG + parameter("EXECUTION_ENV_PATH", "/no/such.tar.gz"),
        WORKS,
        "its environment does not exist: /no/such.tar.gz",
        "Correct EXECUTION_ENV_PATH in config.pbtxt, or put the archive there.",
        _changes(parameter("EXECUTION_ENV_PATH", "/no/such.tar.gz"), ""),
    ),
    "requirements_broken": Fault(
        CONFIG,
        WORKS,
        "its environment cannot be made: ",
        "Correct requirements.txt or the archive; this shows the whole output:",
        _correct_requirements,
        prepare=_broken_requirements,
    ),
    "python_missing": Fault(
        CONFIG + _PYTHON,
        WORKS,
        "the Python that it names is not here",
        "Correct PYTHON_EXECUTABLE in its config.pbtxt, or install that Python.",
        _changes(_PYTHON, ""),
    ),
    "python_broken": Fault(
        CONFIG + _FALSE,
        WORKS,
        "its Python cannot start: status 1",
        "Run `/bin/false -c 1` as the user of the models to see it",
        _run_the_python,
    ),
}

# -------------------------------------------------------------------- loads

_SAMPLE = 'inputs { key: "%s" value { data_type: TYPE_FP32 dims: [1] zero_data: true } }'
_WARMUP = 'model_warmup [{ name: "cold" batch_size: 1 %s }]\n'


def _member_mended(world: World) -> None:
    member = World(world.server, "member")
    _mend(member)
    assert "" == member.load()


def _correct_member(world: World) -> None:
    world.configure('"membre"', '"member"')
    _member_mended(world)


def _broken_member(world: World) -> None:
    member = World(world.server, "member")
    member.unload()  # another test may have mended it
    member.write(CONFIG, initializing("raise OSError('the disk is gone')"))
    member.load()


#: Outside the directories of tests, which no other user may enter.
_SECRET = Path(tempfile.gettempdir()) / f"zmqtriton-secret-{os.getpid()}" / "secret"


def _write_secret(rights: int) -> None:
    _SECRET.parent.mkdir(exist_ok=True)
    _SECRET.touch()
    _SECRET.chmod(rights)
    _SECRET.parent.chmod(rights)


def _served_without_secret(world: World) -> None:
    world.serves()
    shutil.rmtree(_SECRET.parent)


def _load_until_it_begins(world: World) -> None:
    """Load it until the limit finds it in its code: a busy machine may start it only later."""
    begun = Path(f"{world.code}.begun")
    eventually(lambda: world.load() and begun.exists(), 120, "its code has begun")


def _load_in_vain(world: World) -> None:
    world.write_code(f"import nothing_here\n{WORKS}")
    world.load()


def _serves_after_restart(world: World) -> None:
    world.type(f"zmqtriton-ctl restart {world.name}")
    world.serves()


def _ends(world: World) -> None:
    """It is killed in the end, and serves again when it is loaded."""
    eventually(lambda: world.state() != "UNLOADING", 120, "its end")
    _mend(world)
    assert "" == world.load()
    world.serves()


_LOADS = {
    "raises": Fault(
        CONFIG,
        initializing("raise ValueError('no weights at /data/weights.pt')"),
        "it raises ValueError: no weights at /data/weights.pt (model.py, line 8, in initialize)",
        "Correct the model, or what it needs there.",
    ),
    "forbidden": Fault(
        CONFIG,
        initializing(
            "os.geteuid() or os.seteuid(65534)",
            f"open({str(_SECRET)!r})",
            "os.seteuid(os.getuid())",
        ),
        "it may not: [Errno 13] Permission denied",
        "Give the user of the models (--stub-user, if set) the right to use that file, and to",
        lambda world: _write_secret(0o755),
        prepare=lambda world: _write_secret(0),
        proof=_served_without_secret,
    ),
    "crashes": Fault(
        CONFIG,
        initializing("import ctypes", "ctypes.string_at(0)"),
        "it crashes in native code, killed by SIGSEGV",
        "A library that the model uses is broken, or of another version than it expects.",
    ),
    "exits": Fault(
        CONFIG,
        initializing("os._exit(3)"),
        "its process ends itself, with status 3",
        "Something in it calls exit(); the last lines of its log come before.",
    ),
    "exits_softly": Fault(
        CONFIG,
        initializing("sys.exit('no licence')"),
        "it raises SystemExit: no licence (model.py, line 8, in initialize)",
        "Correct the model, or what it needs there.",
    ),
    "loads_late": Fault(
        CONFIG + parameter("max_load_seconds", 1),
        initializing("open(__file__ + '.begun', 'w').close(); time.sleep(5)"),
        "loading took longer than max_load_seconds, 1 s (model.py, line 8, in initialize)",
        "Raise max_load_seconds if it only needs longer; the line says where it was.",
        _changes('string_value: "1"', 'string_value: "600"'),
        load=_load_until_it_begins,
    ),
    "loads_long": Fault(
        CONFIG,
        initializing(_LONG),
        "it is still loading (model.py, line 8, in initialize)",
        "This shows the line that it is at; max_load_seconds is how long it may take.",
        proof=_serves_after_restart,
    ),
    "loads_and_locks": Fault(
        CONFIG,
        initializing("import ctypes", "ctypes.PyDLL(None).sleep(100000)"),
        "it is still loading (model.py, line 9, in initialize)",
        "This shows the line that it is at; max_load_seconds is how long it may take.",
        proof=_serves_after_restart,
    ),
    "loads_itself": Fault(
        CONFIG,
        initializing("pb_utils.load_model('loads_itself')"),
        "its initialize loads a model that waits for it",
        "Load that model elsewhere: models that load each other wait for ever.",
    ),
    "warmed_wrongly": Fault(
        CONFIG + _WARMUP % (_SAMPLE % "WRONG"),
        WORKS,
        "a sample of its warm-up does not fit its configuration: expected 1 inputs but got 0",
        "Correct model_warmup in config.pbtxt: a sample has each input, with its type and shape.",
        _changes('"WRONG"', '"IN"'),
    ),
    "warmed_in_vain": Fault(
        CONFIG + _WARMUP % (_SAMPLE % "IN"),
        failing("raise KeyError('cold')"),
        "its warm-up has failed with the sample 'cold'",
        "Correct that sample of model_warmup in config.pbtxt, or model.py.",
        lambda world: world.write_code(WORKS),
    ),
    "chain": Fault(
        broken.ensemble("member"),
        None,
        "its member 'member' is not ready: it raises OSError: the disk is gone",
        "Correct the model, or what it needs there.",
        _member_mended,
        prepare=_broken_member,
    ),
    "chain_misspelt": Fault(
        broken.ensemble("membre"),
        None,
        "its member 'membre' does not exist; did you mean 'member'?",
        "Correct model_name of that step, or add the model to a repository.",
        _correct_member,
        prepare=_broken_member,
    ),
    "never_loaded": Fault(
        CONFIG,
        WORKS,
        "not ready: nobody has loaded it",
        "The server loads models on request (--model-control-mode=explicit).",
        nothing,
        load=nothing,
    ),
    "unloaded": Fault(
        CONFIG,
        WORKS,
        "an operator or a client has unloaded it",
        "Nothing is wrong. Load it if it is needed.",
        nothing,
        load=serve,
        provoke=lambda world: world.server.control_model("unload", world.name),
    ),
    "drained": Fault(
        CONFIG,
        WORKS,
        "it is drained",
        "An operator has asked for that, or the server stops; this takes it back.",
        nothing,
        load=serve,
        provoke=lambda world: world.type(f"zmqtriton-ctl drain {world.name}"),
    ),
    "ends_never": Fault(
        CONFIG,
        model_of(f"{broken.WORKS}    def finalize(self):\n        {_LONG}\n"),
        "it is being unloaded (model.py, line 10, in finalize)",
        "This shows the line that it is at. A process that does not end in time is killed.",
        nothing,
        load=serve,
        provoke=lambda world: world.server.control_model("unload", world.name),
        proof=_ends,
        untrue=("finishes the requests", "finishes 0"),
    ),
    "reload_fails": Fault(
        CONFIG,
        WORKS,
        "ready, but the last load failed, the earlier version serves: cannot import",
        "List it in",
        lambda world: world.write_code(WORKS),
        load=serve,
        provoke=_load_in_vain,
    ),
}

# ----------------------------------------------------------------- requests


def _killed(number: int) -> Callable[[World], None]:
    def provoke(world: World) -> None:
        for pid in world.server.stub_pids(world.name):
            os.kill(pid, number)

    return provoke


def _asked_behind(times: int = 1, body: object = BODY) -> Callable[[World], None]:
    return lambda world: world.ask_behind(times=times, body=body)


def _ends_long_executions(world: World) -> None:
    """End them by the parameter, as advised."""
    world.add_to_config(parameter("max_execution_seconds", "0.5"))
    world.type(f"zmqtriton-ctl reload {world.name}")
    assert 503 == world.ask()
    _mend(world)


def _write_version(world: World, number: str, code: str) -> None:
    (world.path / number).mkdir()
    (world.path / number / "model.py").write_text(code)


def _with_called(world: World) -> None:
    called = World(world.server, "is_asked_back")
    called.write(CONFIG, model_of(broken.calling("asks_back")))
    called.load()


def _mend_called(world: World) -> None:
    World(world.server, "is_asked_back").write_code(WORKS)
    world.type("zmqtriton-ctl restart is_asked_back")


def _mend_and_reload(world: World) -> None:
    _mend(world)
    world.type(f"zmqtriton-ctl reload {world.name}")


_HANGS = "This shows the line of code that each thread is at. The parameter max_execution_seconds"
_CALLS_ONCE = (
    "    def execute(self, requests):\n"
    "        given = pb_utils.get_input_tensor_by_name(requests[0], 'IN')\n"
    "        if given.as_numpy()[0] > 0:\n"
    "            zero = pb_utils.Tensor('IN', given.as_numpy() - 1)\n"
    "            answer = pb_utils.InferenceRequest(\n"
    "                model_name='%s', requested_output_names=['OUT'], inputs=[zero]\n"
    "            ).exec()\n"
    "            if answer.has_error():\n"
    "                raise pb_utils.TritonModelException(answer.error().message())\n"
    f"        {broken.ANSWER}\n"
)
_MISMATCH = "Correct model.py or config.pbtxt, so that both have the same tensors."


_REQUESTS = {
    "fails": Fault(
        CONFIG,
        failing("raise KeyError('no such column')"),
        "it raises KeyError: 'no such column' (model.py, line 8, in execute)",
        "Correct the model, or what it needs there.",
        provoke=asks(),
    ),
    "fails_in_a_library": Fault(
        CONFIG,
        failing("import json", "json.loads('{')"),
        "it raises JSONDecodeError: Expecting property name enclosed in double quotes: line 1 "
        "column 2 (char 1) (model.py, line 9, in execute)",
        "Correct the model, or what it needs there.",
        provoke=asks(),
        untrue=("decoder.py",),
    ),
    "method_missing": Fault(
        CONFIG,
        model_of("    def initialize(self, args):\n        pass\n"),
        "its class has no method execute()",
        "Write `def execute(self, requests)`, which returns a list",
        provoke=asks(),
    ),
    "forgets_return": Fault(
        CONFIG,
        model_of("    def execute(self, requests):\n        pass\n"),
        "its execute() has neither returned a response to the request nor kept its sender",
        "A `return` may be missing",
        provoke=asks(),
    ),
    "returns_none": Fault(
        CONFIG,
        model_of("    def execute(self, requests):\n        return []\n"),
        "the list that its execute() returns has 0 responses, and there are 1 requests",
        "execute() returns a list with an InferenceResponse for each request, in the same order.",
        provoke=asks(),
    ),
    "calls_absent": Fault(
        CONFIG,
        failing(
            'call = pb_utils.InferenceRequest(model_name="tokenizer", inputs=[],',
            '    requested_output_names=["OUT"])',
            'pb_utils.get_output_tensor_by_name(call.exec(), "OUT").as_numpy()',
        ),
        "it asks for .as_numpy of a tensor that is not there (model.py, line 10, in execute)",
        "The name of the tensor is wrong, or a model that it calls has failed: look at has_error()",
        provoke=asks(),
    ),
    "exits_in_requests": Fault(
        CONFIG,
        failing("exit(3)"),
        "it raises SystemExit: 3 (model.py, line 8, in execute)",
        "Correct the model, or what it needs there.",
        provoke=asks(),
    ),
    "dies": Fault(
        CONFIG,
        failing("os._exit(4)"),
        "its process ends itself, with status 4",
        "Something in it calls exit(); the last lines of its log come before.",
        provoke=asks(7),
    ),
    "crashes_in_requests": Fault(
        CONFIG,
        failing("import ctypes", "ctypes.string_at(0)"),
        "it crashes in native code, killed by SIGSEGV: Segmentation fault (model.py, line 9",
        "A library that the model uses is broken, or of another version than it expects.",
        provoke=asks(2),
    ),
    "asks_much_memory": Fault(
        CONFIG,
        failing(
            "import resource",
            "resource.setrlimit(resource.RLIMIT_AS, (1 << 34, 1 << 34))",
            "np.ones(1 << 40, np.uint8)",
        ),
        "it has no memory left: MemoryError: Unable to allocate 1.00 TiB",
        "Give the machine more memory, or the model less to hold.",
        lambda world: world.write_code(world.code.read_text().replace("1 << 40", "1 << 4")),
        provoke=asks(),
    ),
    "hungry": Fault(
        CONFIG + parameter("max_memory_bytes", "150M"),
        failing("self.kept = np.ones(400 << 20, np.uint8)", "time.sleep(2)"),
        "it needs more memory than its quota: max_memory_bytes is 157286400",
        "Raise max_memory_bytes, or find out what the model keeps.",
        _changes('"150M"', '"2G"'),
        provoke=asks(),
    ),
    "too_long": Fault(
        CONFIG + parameter("max_execution_seconds", "1"),
        failing("time.sleep(2)"),
        "a request took longer than max_execution_seconds, 1 s (model.py, line 8, in execute)",
        "Raise max_execution_seconds if it only needs longer; the line says where it was.",
        _changes('string_value: "1"', 'string_value: "600"'),
        provoke=asks(1),
    ),
    "hangs": Fault(
        CONFIG,
        failing(_LONG),
        "it hangs or is slow (model.py, line 8, in execute): 1 request in progress",
        _HANGS,
        _ends_long_executions,
        provoke=_asked_behind(),
    ),
    "hangs_in_c": Fault(
        CONFIG,
        failing("import ctypes", "ctypes.CDLL(None).sleep(100000)"),
        "it hangs or is slow (model.py, line 9, in execute): 1 request in progress",
        _HANGS,
        _ends_long_executions,
        provoke=_asked_behind(),
    ),
    "hangs_with_the_lock": Fault(
        CONFIG,
        failing("import ctypes", "ctypes.PyDLL(None).sleep(100000)"),
        "it hangs or is slow (model.py, line 9, in execute): 1 request in progress",
        _HANGS,
        _ends_long_executions,
        provoke=_asked_behind(),
    ),
    "thread_has_the_lock": Fault(
        CONFIG,
        failing(
            "import ctypes, threading",
            "hold = ctypes.PyDLL(None).sleep",
            "threading.Thread(target=hold, args=(100000,), daemon=True).start()",
            "time.sleep(1)",
        ),
        "it hangs or is slow (model.py, line 1",
        _HANGS,
        _ends_long_executions,
        provoke=_asked_behind(),
    ),
    "asks_itself": Fault(
        CONFIG,
        model_of(_CALLS_ONCE % "asks_itself"),
        "deadlock: models call each other and wait for ever (asks_itself -> asks_itself)",
        "Let no model call itself, not by way of others either. Where such calls come to an end",
        nothing,
        provoke=asks(),
    ),
    "asks_back": Fault(
        CONFIG,
        model_of(broken.calling("is_asked_back")),
        "deadlock: models call each other and wait for ever (asks_back -> "
        "is_asked_back -> asks_back)",
        "Let no model call itself, not by way of others either.",
        _mend_called,
        prepare=_with_called,
        provoke=asks(),
    ),
    "misnames_input": Fault(
        CONFIG,
        failing("pb_utils.get_input_tensor_by_name(requests[0], 'INPUT')"),
        "its code asked for 'INPUT', which its configuration does not name; it names IN",
        _MISMATCH,
        provoke=asks(),
    ),
    "misnames_output": Fault(
        CONFIG,
        WORKS.replace("'OUT'", "'OUTPUT'"),
        "its code sent 'OUTPUT', which its configuration does not name; it names OUT",
        _MISMATCH,
        provoke=asks(),
    ),
    "mistypes_output": Fault(
        CONFIG,
        WORKS.replace("np.float32", "np.int64"),
        "its code sent INT64 for 'OUT', which its configuration declares as FP32",
        _MISMATCH,
        provoke=asks(),
    ),
    "misshapes_output": Fault(
        CONFIG,
        WORKS.replace("np.zeros(1", "np.zeros(7"),
        "its code sent shape [7] for 'OUT', which its configuration declares as [1]",
        _MISMATCH,
        provoke=asks(),
    ),
    "answers_errors": Fault(
        CONFIG,
        model_of(
            "    def execute(self, requests):\n"
            "        error = pb_utils.TritonError('no such customer')\n"
            "        return [pb_utils.InferenceResponse(error=error) for _ in requests]\n"
        ),
        "2 of 2 requests failed, the last 0s ago with the answer: no such customer",
        "The log may say more; errors that the model itself returns are in no log.",
        _mend_and_reload,
        provoke=asks(),
    ),
    "opens_too_much": Fault(
        CONFIG,
        failing(
            "import resource",
            "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]",
            "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))",
            "files = [open('/dev/null') for _ in range(100)]",
        ),
        "a process has no file descriptors left: Too many open files (model.py, line 11",
        "Raise `ulimit -n` (LimitNOFILE= of systemd), or close files in the model.",
        provoke=asks(),
    ),
    "makes_large_tensors": Fault(
        CONFIG.replace("dims: [1] }]\n", "dims: [-1] }]\n") + parameter("max_segment_bytes", "1M"),
        WORKS.replace("np.zeros(1", "np.zeros(1 << 20"),
        "its tensors need more shared memory than max_segment_bytes allows",
        "Raise the quota, or send smaller tensors.",
        _changes('"1M"', '"64M"'),
        provoke=asks(),
    ),
    "exceeds_a_quota": Fault(
        CONFIG.replace("dims: [1] }]\n", "dims: [-1] }]\n") + parameter("max_segment_bytes", "1M"),
        WORKS.replace("np.zeros(1", "np.zeros(1 << 20"),
        "its quota max_segment_bytes (1048576) was exceeded",
        "Raise the parameter in config.pbtxt.",
        _changes('"1M"', '"64M"'),
        provoke=asks(),
    ),
    "has_a_broken_version": Fault(
        CONFIG + "version_policy: { all { } }\n",
        WORKS,
        "version 2 could not be loaded",
        "All versions of a load serve, or none does.",
        lambda world: (world.path / "2" / "model.py").write_text(WORKS),
        prepare=lambda world: _write_version(world, "2", "import nothing_here\n"),
    ),
    "killed": Fault(
        CONFIG,
        WORKS,
        "somebody has killed it (SIGKILL)",
        "Nobody in the server did. Look into the kernel's log for the memory: `dmesg`.",
        nothing,
        load=serve,
        provoke=_killed(signal.SIGKILL),
        untrue=("the kernel has killed it",),
    ),
    "stopped": Fault(
        CONFIG,
        WORKS,
        "a signal has stopped its process, so it was killed",
        "It is started again by itself; the log says more.",
        nothing,
        load=serve,
        provoke=_killed(signal.SIGSTOP),
    ),
}

# -------------------------------------------------------------- slow models

SLOW = failing("time.sleep(0.2)")
WAITED: dict[str, float] = {}


_QUEUE = "max_batch_size: 1\n" + CONFIG + "dynamic_batching { default_queue_policy { %s } }\n"
SLOW_BATCH = model_of("    def execute(self, requests):\n        time.sleep(0.2)\n" + ANSWERS)
TWO = "instance_group [{ count: 2 kind: KIND_CPU }]\n"


def _refused(body: object = BATCH) -> Callable[[World], None]:
    """Ask by more clients than there is room for."""

    def provoke(world: World) -> None:
        statuses = world.load_with(6, 3, body)
        WAITED[world.name] = statuses.count(503)

    return provoke


def _fewer_are_refused(body: object = BATCH) -> Callable[[World], None]:
    def proof(world: World) -> None:
        now = world.load_with(6, 3, body).count(503)
        assert now < WAITED[world.name], (now, WAITED)

    return proof


def _hold_one(world: World) -> None:
    Path(f"{world.code}.holds").touch()
    world.server.stub_pids(world.name)
    names = world.server.instance_names(world.name)
    pids = dict(zip(names, world.server.stub_pids(world.name), strict=True))
    os.kill(pids[max(pids)], signal.SIGKILL)


def _wait_for(seconds: float, *, times: int = 3, at_once: bool = False) -> Callable[[World], None]:
    """Ask with a deadline; answered requests are of those with long ones."""

    def provoke(world: World) -> None:
        path, headers = f"/v2/models/{world.name}/infer", {"X-Request-Timeout": str(seconds)}

        def ask() -> None:
            status = world.server.exchange(path, json.dumps(BODY).encode(), headers).status
            assert status == 200 or seconds < 60

        threads = [threading.Thread(target=ask) for _ in range(times)]
        for thread in threads:
            thread.start()
            if not at_once:
                thread.join()
        for thread in threads:
            thread.join()

    return provoke


_SLOW_ONES = {
    "queue_full": Fault(
        _QUEUE % "max_queue_size: 1",
        SLOW_BATCH,
        "the queue is too short: ",
        "More instances make the queue shorter; max_queue_size in config.pbtxt is its limit.",
        _changes("max_queue_size: 1", "max_queue_size: 100"),
        load=serve,
        provoke=_refused(),
        proof=_fewer_are_refused(),
    ),
    "queue_times_out": Fault(
        _QUEUE % "timeout_action: REJECT default_timeout_microseconds: 50000",
        SLOW_BATCH,
        "refused because they had waited for too long in the queue",
        "More instances make the queue shorter; default_timeout_microseconds",
        _changes("50000", "50000000"),
        load=serve,
        provoke=_refused(),
        proof=lambda world: (
            world.type(f"zmqtriton-ctl reload {world.name}") and _fewer_are_refused()(world)
        ),
    ),
    "crowded": Fault(
        CONFIG + parameter("max_requests", 1),
        SLOW,
        "refused because too many were unanswered",
        "More instances make the queue shorter; max_requests in config.pbtxt, or --max-model-req",
        _changes('string_value: "1"', 'string_value: "100"'),
        load=serve,
        provoke=_refused(BODY),
        proof=lambda world: (
            world.type(f"zmqtriton-ctl reload {world.name}") and _fewer_are_refused(BODY)(world)
        ),
    ),
    "throttled": Fault(
        CONFIG + parameter("max_executions_per_second", "0.05"),
        WORKS,
        "its quota holds it back",
        "Raise the parameter in config.pbtxt, or ask it less often.",
        _changes('"0.05"', '"100"'),
        load=serve,
        provoke=_asked_behind(3),
    ),
    "waits_too_short": Fault(
        CONFIG,
        failing("time.sleep(0.5)"),
        "their deadline is shorter than the execution",
        "Clients must wait longer (X-Request-Timeout, client_timeout), or the model must be faster",
        nothing,
        load=serve,
        provoke=lambda world: world.ask() and _wait_for(0.2)(world),
        untrue=("zmqtriton-ctl scale",),
        proof=lambda world: _wait_for(60.0)(world),
    ),
    "waits_while_it_computes": Fault(
        CONFIG,
        failing("time.sleep(3)"),
        "their deadline passed while they were executed",
        "Clients must wait longer, or the model must be faster.",
        _mend_and_reload,
        load=serve,
        provoke=_wait_for(0.3, times=1),
    ),
    "waits_in_vain": Fault(
        CONFIG,
        failing("time.sleep(0.5)"),
        "waited in the queue until their deadline",
        "They waited for executions that nobody waits for any more.",
        nothing,
        load=serve,
        provoke=lambda world: world.ask() and _wait_for(0.4, times=6, at_once=True)(world),
        untrue=("zmqtriton-ctl scale",),
        proof=lambda world: _wait_for(60.0)(world),
    ),
    "waits_in_the_queue": Fault(
        CONFIG,
        failing("time.sleep(0.3)"),
        "waited in the queue until their deadline",
        "More instances make the queue shorter; or clients wait longer.",
        nothing,
        load=serve,
        provoke=lambda world: world.ask() and _wait_for(0.8, times=8, at_once=True)(world),
    ),
    "waits_for_some": Fault(
        CONFIG,
        failing(
            "self.count = getattr(self, 'count', 0) + 1",
            "time.sleep(2 if self.count % 5 == 0 else 0.01)",
        ),
        "their deadline passed while they were executed",
        "Some executions take longer than others; clients must wait for those, too.",
        nothing,
        load=serve,
        provoke=lambda world: world.ask() and _wait_for(1.0, times=4)(world),
        untrue=("zmqtriton-ctl scale",),
        proof=lambda world: _wait_for(60.0)(world),
    ),
    "one_is_away": Fault(
        CONFIG + TWO,
        initializing(
            "while os.path.exists(__file__ + '.holds') and args['model_instance_name'][-1] == '1':",
            "    time.sleep(0.01)",
        ),
        "1 of 2 instances are ready, others are ",
        "Requests wait for the others.",
        lambda world: Path(f"{world.code}.holds").unlink(),
        load=serve,
        provoke=lambda world: _hold_one(world),
        proof=lambda world: (
            eventually(lambda: "instances are ready, others" not in world.texts(), 60, "both")
            and None
        ),
    ),
}

# ------------------------------------------------------------------- routes

_ROUTES = (
    "from zmqtriton.routes import route\n\n\n@route('GET /who')\ndef who(request, infer):\n    %s\n"
)


def _write_routes(body: str) -> Callable[[World], None]:
    def write(world: World) -> None:
        (world.path / "1" / "routes.py").write_text(_ROUTES % body)

    return write


def _ask_route(world: World) -> None:
    path = f"/models/{world.name}/who"
    eventually(lambda: world.server.status(path) not in (0, 404), 60, "its routes")


def _route_answers(world: World) -> None:
    path = f"/models/{world.name}/who"
    eventually(lambda: world.server.status(path) == 200, 60, "its routes answer")


def _mend_routes(world: World) -> None:
    _write_routes("return {}")(world)
    assert "" == world.load()


_ROUTED = {
    "route_fails": Fault(
        CONFIG,
        WORKS,
        "its route GET /who has failed",
        "Correct routes.py, or what it needs there.",
        _mend_routes,
        load=serve,
        prepare=_write_routes("raise KeyError('no such name')"),
        provoke=_ask_route,
        proof=_route_answers,
    ),
    "routes_broken": Fault(
        CONFIG,
        WORKS,
        "its routes are not served: ",
        "List it in",
        _mend_routes,
        load=World.load_behind,
        prepare=_write_routes("pass\nimport nothing_here"),
        proof=_route_answers,
    ),
}

FAULTS: dict[str, Fault] = {
    **_FILES,
    **_ENVIRONMENTS,
    **_LOADS,
    **_REQUESTS,
    **_SLOW_ONES,
    **_ROUTED,
}
