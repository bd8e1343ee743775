"""Queues with policies: who is refused, who goes behind others, and in which words.

A model asks another one from several threads, which is how a single request keeps it busy and its
queue filled.
"""

from __future__ import annotations

from tests.conformance.cases import Case, Http, coded
from tests.conformance.repositories import Model

REPOSITORY = "policies"
OPTIONS = ("--model-control-mode=explicit", "--load-model=*")
MODELS = (
    Model("coded"),
    Model(
        "coded",
        "limited",
        "dynamic_batching { default_queue_policy { default_timeout_microseconds: 300000 "
        "allow_timeout_override: true } }\n",
    ),
    Model(
        "coded",
        "bounded",
        "dynamic_batching { default_queue_policy { max_queue_size: 2 } }\n",
    ),
    Model(
        "coded",
        "strict",
        "dynamic_batching { default_queue_policy { default_timeout_microseconds: 60000000 } }\n",
    ),
    Model(
        "coded",
        "unlimited",
        "dynamic_batching { default_queue_policy { allow_timeout_override: true } }\n",
    ),
    Model(
        "coded",
        "delayed",
        "dynamic_batching { default_queue_policy { timeout_action: DELAY "
        "default_timeout_microseconds: 60000000 allow_timeout_override: true } }\n",
    ),
)

#: Asks one after another, without waiting for answers; `said` has them as they come.
ASKS = """
import threading, time
said, threads = [], []
def ask(name, seconds, more):
    code = f"import time\\ntime.sleep({seconds})\\nreturn [say('{name}')]"
    inputs = [pb_utils.Tensor('CODE', np.array([code.encode()], dtype='O'))]
    answer = pb_utils.InferenceRequest(
        model_name=MODEL, inputs=inputs, requested_output_names=['SAID'], **more).exec()
    text = answer.error().message() if answer.has_error() else name
    said.append(text)
def later(name, seconds, **more):
    threads.append(threading.Thread(target=ask, args=(name, seconds, more)))
    threads[-1].start()
    time.sleep(0.1)
"""
ENDS = "for thread in threads: thread.join()\n"


def asks(model: str, *calls: str, in_order: bool = False) -> Http:
    said = "said" if in_order else "sorted(said)"
    lines = ASKS.replace("MODEL", repr(model)) + "\n".join(calls) + "\n" + ENDS
    return coded(lines + f"return [say(*{said})]")


FIRST = "later('first', 0.8)"


def _timed(name: str, request: Http, row: str, why: str) -> Case:
    return Case(name, request, row, why, is_timed=True)


CASES = (
    _timed(
        "waited_too_long",
        asks("limited", FIRST, "later('second', 0)"),
        "E63",
        "the default timeout of a queue passes",
    ),
    _timed(
        "executed_for_longer_than_a_queue_s_timeout",
        asks("limited", FIRST),
        "E63",
        "only waiting counts",
    ),
    _timed(
        "waited_for_longer_than_it_said_itself",
        asks("strict", FIRST, "later('second', 0, timeout=100000)"),
        "E64",
        "a timeout of its own, which is not allowed",
    ),
    _timed(
        "waited_for_longer_than_it_may_shorten_to",
        asks("delayed", FIRST, "later('second', 0, timeout=100000)"),
        "E64",
        "late, and executed all the same",
    ),
    _timed(
        "lengthened_its_timeout",
        asks("limited", FIRST, "later('second', 0, timeout=5000000)"),
        "A61",
        "a timeout of its own only shortens",
    ),
    _timed(
        "set_a_timeout_where_there_is_none",
        asks("unlimited", FIRST, "later('second', 0, timeout=100000)"),
        "E64",
        "a timeout of its own where the queue has none",
    ),
    _timed(
        "one_more_than_may_wait",
        asks(
            "bounded",
            "later('first', 0.6)",
            *(f"later('{name}', 0, request_id='{name}')" for name in "bcde"),
        ),
        "C48",
        "a full queue, with the id of the request",
    ),
    _timed(
        "one_more_without_an_id",
        asks("bounded", "later('first', 0.6)", *["later('other', 0)"] * 3),
        "E63",
        "a full queue, and no id",
    ),
    _timed(
        "late_ones_go_behind_the_others",
        asks(
            "delayed",
            FIRST,
            "later('late', 0.1, timeout=50000)",
            "later('second', 0.1)",
            "later('third', 0.1)",
            in_order=True,
        ),
        "E63",
        "who is late goes last",
    ),
)
