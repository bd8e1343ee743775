"""Cases around serving: before, between and after run and stop, and how serving ends.

lifecycle.py ANSWERS HTTP GRPC METRICS
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
from common import PLAIN, tensors
from played import outcome, played

from zmqtriton.pytriton.exceptions import PyTritonUnrecoverableError
from zmqtriton.pytriton.model_config import ModelConfig
from zmqtriton.pytriton.triton import Triton, TritonConfig

INPUTS, OUTPUTS = tensors("a"), tensors("b")
HTTP, GRPC, METRICS = (int(port) for port in sys.argv[2:5])
#: How long a process may take to end.
PATIENCE_S = 100
#: Set when a slow request is executed.
BEGUN = threading.Event()
#: What a process of this script writes when it serves.
SERVING = Path(sys.argv[1]).with_suffix(".serving")
#: Of the server that the first cases share.
SHARED = {}


def infer(requests):
    return [{"b": request["a"] * 2} for request in requests]


def slow(requests):
    BEGUN.set()
    time.sleep(0.5)
    return infer(requests)


def unrecoverable(requests):
    raise PyTritonUnrecoverableError("the memory of the card is gone")


def made():
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=HTTP,
        grpc_address="127.0.0.1",
        grpc_port=GRPC,
        metrics_port=METRICS,
    )
    return Triton(config=config)


def get(path):
    """The status of a GET; what there is instead where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{HTTP}{path}", timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return "nobody"


def ask(model, value=1.0):
    """The status of an inference and what it gave."""
    tensor = {"name": "a", "shape": [1], "datatype": "FP32", "data": [value]}
    connection = http.client.HTTPConnection("127.0.0.1", HTTP, timeout=60)
    try:
        body = json.dumps({"inputs": [tensor]})
        connection.request("POST", f"/v2/models/{model}/infer", body)
        response = connection.getresponse()
        document = json.loads(response.read())
    except (OSError, http.client.HTTPException):
        return "nobody"
    finally:
        connection.close()
    if response.status != 200:
        return response.status
    return document["outputs"][0]["data"]


def is_ready(model):
    return get(f"/v2/models/{model}/ready")


def state(triton):
    return [triton.is_alive(), triton.is_connected()]


def bind(triton, name, function=infer, config=PLAIN, **more):
    return triton.bind(name, function, INPUTS, OUTPUTS, config=config, **more)


# ------------------------------------------------- one server, from its beginning


def before_it_runs():
    triton = SHARED["triton"] = made()
    bind(triton, "early")
    bind(triton, "slow", slow)
    return [*state(triton), is_ready("early")]


def run_says_nothing():
    return SHARED["triton"].run()


def while_it_runs():
    return [*state(SHARED["triton"]), is_ready("early"), ask("early")]


def run_again():
    return [SHARED["triton"].run(), ask("early")]


def connect_again():
    return SHARED["triton"].connect()


def bound_while_it_runs():
    """It serves as soon as bind returns."""
    bind(SHARED["triton"], "late")
    return [is_ready("late"), ask("late")]


def bound_twice_while_it_runs():
    return outcome(bind, SHARED["triton"], "early")


def models_of_the_server():
    return [get("/v2/health/ready"), get("/v2/models/early/config"), get("/v2/models/nobody")]


def bound_with_a_name_for_a_type():
    """numpy's name is no type; nothing was asked of the server."""
    ending = outcome(SHARED["triton"].bind, "n", infer, tensors("a", dtype="float32"), OUTPUTS)
    return [ending if ending is None else ending["raises"], get("/v2/health/ready")]


def bound_with_a_type_that_triton_has_not():
    """Say whether all else is as it was."""
    ending = outcome(SHARED["triton"].bind, "c", infer, tensors("a", dtype=np.complex64), OUTPUTS)
    return [ending["raises"], get("/v2/health/ready"), ask("early")]


def refused_when_bound():
    """Say whether what Triton was never asked to load counts all the same."""
    triton = SHARED["triton"]
    ending = outcome(bind, triton, "sizeless", infer, ModelConfig(max_batch_size=0))
    return [ending, *state(triton), ask("early")]


def bound_as_two_versions():
    """Of one model: whether the second is served, and whether the first still is."""
    triton = SHARED["triton"]
    bind(triton, "versions", lambda requests: [{"b": r["a"] * 3} for r in requests])
    ending = outcome(bind, triton, "versions", model_version=2)
    answers = [ask("versions/versions/1"), ask("versions/versions/2")]
    return [ending if ending is None else ending["raises"], *answers, get("/v2/health/ready")]


def asked_while_it_stops():
    """Say whether who is being answered gets the answer."""
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask("slow")))
    asking.start()
    BEGUN.wait(60)
    stopped = SHARED["triton"].stop()
    asking.join()
    return [stopped, answers]


def after_it_stopped():
    triton = SHARED["triton"]
    return [*state(triton), is_ready("slow"), ask("slow"), outcome(triton.stop)]


def bound_after_it_stopped():
    return outcome(bind, SHARED["triton"], "later")


# ---------------------------------------------------------------- other servers


def in_a_context():
    """Raise there: it passes through, and the server ends."""
    triton = made()
    try:
        with triton:
            before = state(triton)
            bind(triton, "inside")
            inside = [is_ready("inside"), ask("inside")]
            SHARED["unrecoverable"] = fail_for_good(triton)
            raise KeyError("mine")
    except KeyError as error:
        return [str(error), before, inside, state(triton), is_ready("inside")]


def fail_for_good(triton):
    """`serve` returns; the request is answered with an error or not at all."""
    bind(triton, "broken", unrecoverable)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask("broken")))
    asking.start()
    served = triton.serve(monitoring_period_s=0.5)
    asking.join()
    return [served, state(triton), get("/v2/health/live"), [a in (500, "nobody") for a in answers]]


def unrecoverable_error():
    return SHARED["unrecoverable"]


def served_until_interrupted():
    return child("serve", signal.SIGINT)


def ended_without_stop():
    """The process ends, and its server with it."""
    return child("leave", None)


def until(condition):
    for _ in range(2000):
        if condition():
            return True
        time.sleep(0.05)
    return False


def child(what, number):
    """Say how a process of this script ends, and whether its server is gone then."""
    SERVING.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, __file__, *sys.argv[1:5], what])
    if number is not None:
        until(SERVING.exists)
        os.kill(process.pid, number)
    try:
        status = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        status = [process.wait(), "hung"]
    return [status, until(lambda: get("/v2/health/live") == "nobody")]


def serve():
    triton = made()
    bind(triton, "model")
    threading.Thread(target=lambda: until(triton.is_connected) and SERVING.touch()).start()
    triton.serve()
    if triton.is_alive():
        sys.exit(3)


def leave():
    triton = made()
    bind(triton, "model")
    triton.run()
    if ask("model") != [2.0]:
        sys.exit(3)


CASES = [
    # First: PyTritons that follow others in one process hang now and then.
    served_until_interrupted,
    ended_without_stop,
    before_it_runs,
    run_says_nothing,
    while_it_runs,
    run_again,
    connect_again,
    bound_while_it_runs,
    bound_twice_while_it_runs,
    models_of_the_server,
    bound_with_a_name_for_a_type,
    bound_with_a_type_that_triton_has_not,
    refused_when_bound,
    bound_as_two_versions,
    asked_while_it_stops,
    after_it_stopped,
    bound_after_it_stopped,
    in_a_context,
    unrecoverable_error,
]

if __name__ == "__main__":
    if len(sys.argv) > 5:
        {"serve": serve, "leave": leave}[sys.argv[5]]()
    else:
        played(sys.argv[1], CASES)
