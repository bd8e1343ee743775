"""Models at work with a fault, what explain says of it, and how the advice is followed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from tests.standard.tools.advice.model_faults import (
    ANSWERS,
    BATCHING,
    CONFIG,
    SLOW,
    SLOW_BATCH,
    TWO,
    WAITED,
    WORKS,
    Fault,
    asks,
    executing,
    failing,
    initializing,
    model_of,
    nothing,
    parameter,
    serve,
)
from tests.standard.tools.advice.world import BATCH, BODY, World
from tests.standard.tools.system import broken_models as broken
from tests.support.waiting import eventually
from zmqtriton_extras.inspection.tests.advice.models_at_work import AT_WORK

_LEAKS = model_of(
    "    def initialize(self, args):\n        self.kept = []\n"
    + executing("self.kept.append(np.ones(20 << 20, np.uint8))")
)


def _limited_leak(world: World) -> None:
    """Limit it as advised; an instance that has too much is replaced."""
    world.add_to_config(parameter("max_memory_bytes", "300M"))


def _is_replaced(world: World) -> None:
    eventually(
        lambda: world.ask() and "max_memory_bytes is" in world.texts(), 60, "its replacement"
    )
    world.serves()


_SEQUENCES = (
    "max_batch_size: 1\n" + CONFIG + "sequence_batching { max_sequence_idle_microseconds: "
    "600000000 direct { } }\n"
)

_MORE = "They wait for an instance, which more of them or larger batches make shorter."


def _loaded(clients: int = 4, times: int = 6, body: object = BODY) -> Callable[[World], None]:
    def provoke(world: World) -> None:
        WAITED[world.name] = world.queued_ms(partial(world.load_with, clients, times, body))

    return provoke


def _is_shorter(clients: int = 4, times: int = 6, body: object = BODY) -> Callable[[World], None]:
    """The same load waits less than two thirds as long."""

    def proof(world: World) -> None:
        now = world.queued_ms(partial(world.load_with, clients, times, body))
        assert now < WAITED[world.name] * 2 / 3, (now, WAITED)

    return proof


def _with_callee(world: World) -> None:
    callee = World(world.server, "callee")
    callee.write(CONFIG, SLOW)
    assert "" == callee.load()


def _with_step(world: World) -> None:
    step = World(world.server, "step")
    step.write(CONFIG, SLOW)
    assert "" == step.load()


def _sequence(number: int, **flags: bool) -> dict[str, object]:
    return {**BATCH, "parameters": {"sequence_id": number, **flags}}


def _keep_the_slot(world: World) -> None:
    assert 200 == world.ask(body=_sequence(1, sequence_start=True))
    world.ask_behind(body=_sequence(2, sequence_start=True, sequence_end=True))


def _sequence_goes_on(world: World) -> None:
    """The request that waited for a slot has one of the new instance."""
    eventually(lambda: "in its queue" not in world.texts(), 60, "it has a slot")
    assert 200 == world.ask(body=_sequence(1, sequence_end=True))


def _shorter_delay(world: World) -> None:
    world.configure("300000", "1000")


_WEIGHTS = "self.weights = np.arange(40 << 20, dtype=np.float64)"

_PRELOADING = model_of(
    "    @staticmethod\n    def preload(args):\n"
    "        TritonPythonModel.weights = np.arange(40 << 20, dtype=np.float64)\n" + broken.WORKS
)


def _preload(world: World) -> None:
    if "INSTANCES" not in world.config.read_text():
        world.add_to_config(parameter("INSTANCES", "forks"))
    world.write_code(_PRELOADING)


def _is_shared(world: World) -> None:
    world.serves()
    eventually(lambda: "equal pages" not in world.texts(), 60, "nothing is held twice")


_STREAMS = (
    "    async def execute(self, requests):\n"
    "        import asyncio\n"
    "        await asyncio.gather(*[self.stream(request) for request in requests])\n\n"
    "    async def stream(self, request):\n"
    "        import asyncio\n"
    "        sender = request.get_response_sender()\n"
    "        for _ in range(20):\n"
    "            await asyncio.sleep(0.05)\n"
    "            sender.send(pb_utils.InferenceResponse(\n"
    "                [pb_utils.Tensor('OUT', np.zeros(1, np.float32))]))\n"
    "        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)\n"
)


def _streamed(world: World) -> None:
    def stream() -> None:
        body = json.dumps({"IN": [1.0]}).encode()
        assert 200 == world.server.exchange(f"/v2/models/{world.name}/generate_stream", body).status

    threads = [threading.Thread(target=stream) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _asked_over_and_over(name: str) -> Callable[[World], None]:
    """Use a model as that of this name is used, until the end of the test."""

    def provoke(world: World) -> None:
        use = contextmanager(AT_WORK[name].use)(world)
        _USES[world.name] = use
        use.__enter__()

    return provoke


_USES: dict[str, AbstractContextManager[None]] = {}


def _ends_use(world: World) -> None:
    _USES.pop(world.name).__exit__(None, None, None)


def _cured_by(code: str) -> Callable[[World], None]:
    """End the use, and have the model have other code."""

    def cure(world: World) -> None:
        _ends_use(world)
        world.write_code(code)
        world.type(f"zmqtriton-ctl reload {world.name}")

    return cure


def _mend_and_reload(world: World) -> None:
    world.write_code(WORKS)
    world.type(f"zmqtriton-ctl reload {world.name}")


def _stream_s(world: World) -> float:
    """Return how long four streams at the same time take."""
    begin = time.monotonic()
    _streamed(world)
    return time.monotonic() - begin


def _streams_faster_than(code: str) -> Callable[[World], None]:
    """Four streams take less than two thirds of the time that they take with other code."""

    def proof(world: World) -> None:
        now_s, cured = _stream_s(world), world.code.read_text()
        world.write_code(code)
        world.type(f"zmqtriton-ctl reload {world.name}")
        before_s = _stream_s(world)
        world.write_code(cured)
        assert now_s < before_s * 2 / 3, (now_s, before_s)

    return proof


def _with_failing_engine(world: World) -> None:
    config, code = AT_WORK["fails_in_a_callee"].others["failing_engine"]
    engine = World(world.server, "failing_engine")
    engine.write(config, code)
    assert "" == engine.load()


def _mend_engine(world: World) -> None:
    World(world.server, "failing_engine").write_code(WORKS)
    world.type("zmqtriton-ctl reload failing_engine")


_BY_A_THREAD, _IN_EXECUTE, _UNREAD, _KEPT = (
    AT_WORK[name]
    for name in ("streams_by_a_thread", "streams_in_execute", "stream_unread", "stream_never_ends")
)
_BY_FOUR = _BY_A_THREAD.code.replace(
    "        threading.Thread(target", "        for _ in range(4): threading.Thread(target"
)
_ENDS = _KEPT.code.replace(
    "self.senders[-1].send(",
    "self.senders[-1].send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, response=",
)

FAULTS: dict[str, Fault] = {
    "stops_to_debug": Fault(
        CONFIG,
        # with debugpy the command would wait for an editor
        failing("__import__('sys').modules['debugpy'] = None; breakpoint()"),
        "instance stops_to_debug_0 stands at model.py:8, where a breakpoint() waits",
        "A debugger lets it go on; without one it does so by itself",
        _mend_and_reload,
        provoke=lambda world: world.ask_behind(),
        untrue=("hangs",),
    ),
    "slow_in_its_thread": Fault(
        _BY_A_THREAD.config,
        _BY_A_THREAD.code,
        "in its own threads, not in its queue: it is at model.py, line 16, in work",
        "Its threads are slow, not execute().",
        _cured_by(_BY_FOUR),
        load=serve,
        provoke=_asked_over_and_over("streams_by_a_thread"),
        proof=_streams_faster_than(_BY_A_THREAD.code),
        untrue=("hangs",),
    ),
    "streams_for_long": Fault(
        _IN_EXECUTE.config,
        _IN_EXECUTE.code,
        "it streams in execute()",
        "Send from threads or from `async def execute`",
        _cured_by(_BY_FOUR),
        load=serve,
        provoke=_asked_over_and_over("streams_in_execute"),
        proof=_streams_faster_than(_IN_EXECUTE.code),
    ),
    "sends_to_nobody": Fault(
        _UNREAD.config,
        _UNREAD.code,
        "its client does not read: send() waits (model.py, line ",
        "It goes on when the client reads or leaves.",
        _ends_use,
        load=serve,
        provoke=_asked_over_and_over("stream_unread"),
        proof=lambda world: (
            eventually(lambda: "does not read" not in world.texts(), 60, "it has gone on") and None
        ),
        untrue=("hangs",),
    ),
    "keeps_a_sender": Fault(
        _KEPT.config,
        _KEPT.code,
        "no thread of it is at work: it has left 1 request to coroutines that wait, or to",
        "If a stream does not go on: each response sender must send",
        _cured_by(_ENDS),
        load=serve,
        provoke=_asked_over_and_over("stream_never_ends"),
        proof=_streamed,
        untrue=("hangs",),
    ),
    "calls_what_fails": Fault(
        CONFIG,
        model_of(broken.calling("failing_engine")),
        "'failing_engine', which it calls, fails itself: 2 of 2 requests",
        "Look there first: this names the line.",
        _mend_engine,
        load=serve,
        prepare=_with_failing_engine,
        provoke=asks(),
    ),
    "leaks": Fault(
        CONFIG,
        _LEAKS,
        "it leaks memory: instance leaks_0 has grown by 20 MiB with each execution",
        "Find out what the model keeps. Until then the parameter max_memory_bytes",
        _limited_leak,
        provoke=asks(40),
        proof=_is_replaced,
    ),
    "leaks_within_limits": Fault(
        CONFIG + parameter("max_memory_bytes", "4G"),
        _LEAKS,
        "it leaks memory: instance leaks_within_limits_0 has grown by 20 MiB",
        "Find out what the model keeps. An instance is replaced at 4 GiB",
        provoke=asks(40),
    ),
    "slow": Fault(
        CONFIG,
        SLOW,
        "of that in the queue",
        _MORE,
        nothing,
        load=serve,
        provoke=_loaded(),
        proof=_is_shorter(),
    ),
    "slow_in_batches": Fault(
        BATCHING,
        SLOW_BATCH,
        "each execution has one request: no dynamic_batching is set",
        "Add `dynamic_batching { }` to config.pbtxt, if execute() takes several requests",
        lambda world: world.add_to_config("dynamic_batching { }\n"),
        load=serve,
        provoke=_loaded(body=BATCH),
        proof=_is_shorter(body=BATCH),
    ),
    "waits_for_batches": Fault(
        BATCHING + "dynamic_batching { preferred_batch_size: [8] max_queue_delay_microseconds: "
        "300000 }\n",
        model_of("    def execute(self, requests):\n" + ANSWERS),
        "for others in their batch (300 ms at most)",
        "A lower max_queue_delay_microseconds makes it shorter; more instances do not.",
        _shorter_delay,
        load=serve,
        provoke=_loaded(1, 4, BATCH),
        proof=_is_shorter(1, 4, BATCH),
        untrue=("They wait for an instance", "zmqtriton-ctl scale"),
    ),
    "caller": Fault(
        CONFIG,
        model_of(broken.calling("callee")),
        "its one instance waits for 'callee', which it calls",
        "More instances of it and of 'callee' make the queue shorter.",
        nothing,
        load=serve,
        prepare=_with_callee,
        provoke=_loaded(),
        proof=_is_shorter(),
    ),
    "chain_slow": Fault(
        broken.ensemble("step"),
        None,
        "in the queues of its steps, the most at 'step'",
        "They wait for an instance of 'step', which more of them or larger batches make shorter.",
        nothing,
        load=serve,
        prepare=_with_step,
        provoke=_loaded(),
        proof=_is_shorter(),
        untrue=("scale chain_slow",),
    ),
    "sequences_wait": Fault(
        _SEQUENCES,
        WORKS.replace("np.zeros(1,", "np.zeros((1, 1),"),
        "1 request in its queue, though it executes nothing: sequences in progress have all slots",
        "Clients end a sequence by the flag END; max_sequence_idle_microseconds",
        nothing,
        load=serve,
        provoke=_keep_the_slot,
        proof=_sequence_goes_on,
        untrue=("hangs",),
    ),
    "streams": Fault(
        CONFIG + "model_transaction_policy { decoupled: true }\n",
        model_of(_STREAMS),
        "nothing is wrong",
        "",
        nothing,
        load=serve,
        provoke=_streamed,
        proof=nothing,
        untrue=("hangs", "scale", "wait for an instance"),
    ),
    "held_twice": Fault(
        CONFIG + TWO,
        initializing(_WEIGHTS),
        "its 2 instances hold 64",
        "They would be held once, 32",
        _preload,
        load=serve,
        proof=_is_shared,
    ),
    "forks_hold_twice": Fault(
        CONFIG + TWO + parameter("INSTANCES", "forks"),
        initializing(_WEIGHTS),
        "its 2 forks hold 64",
        "What `initialize` loads, the static method `preload` would hold once",
        _preload,
        load=serve,
        proof=_is_shared,
    ),
    "forks_share": Fault(
        CONFIG + TWO + parameter("INSTANCES", "forks"),
        _PRELOADING,
        "its 2 instances are of the forks of process",
        "They share one load until they write to it.",
        nothing,
        load=serve,
        untrue=("equal pages",),
    ),
}
