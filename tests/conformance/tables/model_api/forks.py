"""Models that fork: what the new process can do that pb_utils offers."""

from __future__ import annotations

import textwrap

from tests.conformance.cases import Case, coded
from tests.conformance.tables.bls import ITERATED, SAYS, TWO, asks

REPOSITORY = "main"
FINAL = "pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
COUNTER = (
    "family = pb_utils.MetricFamily(name='conformance_{0}', description='d', "
    "kind=pb_utils.MetricFamily.{1})\n"
)


def forked(text: str, before: str = "") -> str:
    """Runs the text in a fork, and says what came of it; a fork that hangs is killed."""
    body = "say = lambda *values: repr(values)\n" + text
    return (
        "import os, select\nimport numpy as np\n"
        + before
        + "reading, writing = os.pipe()\npid = os.fork()\n"
        + "if not pid:\n    def body():\n"
        + textwrap.indent(body, "        ")
        + "\n    try:\n        text = body()[0]\n"
        + "    except BaseException as error:\n        text = f'{type(error).__name__}: {error}'\n"
        + "    os.write(writing, text.encode())\n    os._exit(0)\n"
        + "if not select.select([reading], [], [], 5)[0]:\n"
        + "    os.kill(pid, 9)\n    os.waitpid(pid, 0)\n    return [say('hangs')]\n"
        + "os.waitpid(pid, 0)\n"
        + "return [pb_utils.InferenceResponse([pb_utils.Tensor('SAID', "
        + "np.array([os.read(reading, 65536)], dtype='O'))])]"
    )


def call_and_say(text: str, model: str = "coded_other", says: str = SAYS) -> str:
    return asks(text, model) + "answer = asked.exec()\n" + says


CASES = (
    Case("forked", coded(forked("return [say(1)]")), "A31", "a fork alone"),
    Case(
        "asked_from_a_fork",
        coded(forked(call_and_say("return [say(7)]"))),
        "A31",
        "another model answers a fork",
    ),
    Case(
        "asked_from_a_fork_for_an_error",
        coded(forked(call_and_say("raise ValueError('on purpose')"))),
        "A31",
        "another model fails",
    ),
    Case(
        "asked_from_a_fork_an_unknown_model",
        coded(forked(call_and_say("x", "unknown").replace("int(error.code()), ", ""))),
        "A31",
        "no such model",
    ),
    Case(
        "asked_from_a_fork_of_a_fork",
        coded(
            forked(
                "inner, outer = os.pipe()\nif not os.fork():\n"
                + textwrap.indent(asks("return [say(7)]", "coded_other"), "    ")
                + "    tensor = asked.exec().output_tensors()[0]\n"
                + "    os.write(outer, tensor.as_numpy()[0])\n    os._exit(0)\n"
                + "os.wait()\nreturn [say(os.read(inner, 100))]"
            )
        ),
        "A31",
        "a fork forks",
    ),
    Case(
        "asked_from_a_fork_for_much",
        coded(
            forked(
                "tensor = pb_utils.Tensor('INPUT0', np.full(100000, 2, 'f4'))\n"
                "asked = pb_utils.InferenceRequest(model_name='identity_fp32', inputs=[tensor], "
                "requested_output_names=['OUTPUT0'])\nanswer = asked.exec()\n"
                "array = answer.output_tensors()[0].as_numpy()\n"
                "return [say(array.shape, float(array.sum()))]"
            )
        ),
        "A31",
        "large tensors both ways",
    ),
    Case(
        "asked_from_a_fork_for_a_stream",
        coded(forked(asks(TWO, "coded_decoupled") + ITERATED)),
        "A31",
        "a decoupled model answers a fork",
    ),
    Case(
        "asked_from_a_fork_for_one_of_many",
        coded(forked(call_and_say(TWO, "coded_decoupled").replace("int(error.code()), ", ""))),
        "A31",
        "exec without decoupled=True",
    ),
    Case(
        "asked_from_a_fork_with_a_wrong_type",
        coded(forked("pb_utils.InferenceRequest(model_name=5)\nreturn [say('not reached')]")),
        "A31",
        "errors of a fork's own",
    ),
    Case(
        "counted_in_a_fork",
        coded(
            forked(
                "metric.increment(2)\nreturn [say(metric.value())]",
                COUNTER.format("forked", "COUNTER")
                + "metric = family.Metric(labels={'a': 'b'})\nmetric.increment(1)\n",
            )
        ),
        "A31",
        "a metric made before",
    ),
    Case(
        "counted_in_a_fork_and_read_after_it",
        coded(
            COUNTER.format("forked_later", "GAUGE")
            + "metric = family.Metric(labels={'a': 'b'})\nmetric.set(5)\n"
            + "import os\npid = os.fork()\nif not pid:\n    metric.increment(2)\n"
            + "    metric.value()\n    os._exit(0)\nos.waitpid(pid, 0)\n"
            + "return [say(metric.value())]"
        ),
        "A31",
        "the parent sees it",
    ),
    Case(
        "family_made_in_a_fork",
        coded(
            forked(
                COUNTER.format("forked_new", "COUNTER")
                + "metric = family.Metric(labels={'a': 'b'})\nmetric.increment(1)\n"
                + "return [say(metric.value())]"
            )
        ),
        "A31",
        "a metric of the fork's own",
    ),
    Case(
        "family_made_in_a_fork_as_another_kind",
        coded(
            forked(
                COUNTER.format("forked_kind", "COUNTER")
                + COUNTER.format("forked_kind", "GAUGE")
                + "return [say('not reached')]"
            )
        ),
        "A31",
        "the same name as another kind",
    ),
    Case(
        "counter_set_in_a_fork",
        coded(
            forked(
                "metric.set(2)\nreturn [say('not reached')]",
                COUNTER.format("forked_set", "COUNTER") + "metric = family.Metric(labels={})\n",
            )
        ),
        "A31",
        "a counter cannot be set",
    ),
    Case(
        "logged_in_a_fork",
        coded(forked("pb_utils.Logger.log_info('conformance')\nreturn [say('logged')]")),
        "A31",
        "a line of the log",
    ),
    Case(
        "asked_in_a_fork_whether_it_is_cancelled",
        coded(forked("return [say(request.is_cancelled())]")),
        "A31",
        "nobody has left",
    ),
    Case(
        "asked_in_a_fork_whether_a_model_is_ready",
        coded(
            forked(
                "return [say(pb_utils.is_model_ready('coded_other'), "
                "pb_utils.is_model_ready('unknown'))]"
            )
        ),
        "A31",
        "one is, one is not there",
    ),
    Case(
        "loaded_an_unknown_model_in_a_fork",
        coded(forked("pb_utils.load_model(model_name='unknown')\nreturn [say('not reached')]")),
        "A31",
        "there is no such directory",
    ),
    Case(
        "sent_from_a_fork",
        coded(
            "import os\nsender = request.get_response_sender()\npid = os.fork()\n"
            f"if not pid:\n    sender.send(say('sent'), {FINAL})\n    os._exit(0)\n"
            "os.waitpid(pid, 0)\nreturn None"
        ),
        "A31",
        "a fork answers",
    ),
    Case(
        "sent_an_error_from_a_fork",
        coded(
            "import os\nsender = request.get_response_sender()\npid = os.fork()\n"
            "if not pid:\n    error = pb_utils.TritonError('on purpose', "
            "pb_utils.TritonError.NOT_FOUND)\n"
            f"    sender.send(pb_utils.InferenceResponse(error=error), {FINAL})\n    os._exit(0)\n"
            "os.waitpid(pid, 0)\nreturn None"
        ),
        "A31",
        "a fork answers with an error",
    ),
    Case(
        "sent_nothing_from_a_fork",
        coded(
            forked(
                "try:\n    sender.send()\nexcept pb_utils.TritonModelException as error:\n"
                "    return [say(str(error))]",
                "sender = request.get_response_sender()\n",
            )
        ),
        "A31",
        "neither a response nor a flag",
    ),
    Case(
        "asked_from_a_pool",
        coded(
            "import multiprocessing, sys, types\n"
            "def ask(number):\n"
            + textwrap.indent(asks("return [say(7)]", "coded_other"), "    ")
            + "    return number, asked.exec().output_tensors()[0].as_numpy()[0]\n"
            "module = types.ModuleType('conformance_pool')\n"
            "module.ask, ask.__module__, ask.__qualname__ = ask, 'conformance_pool', 'ask'\n"
            "sys.modules['conformance_pool'] = module\n"
            "with multiprocessing.get_context('fork').Pool(10) as pool:\n"
            "    return [say(pool.map_async(ask, range(20)).get(20))]"
        ),
        "A31",
        "multiprocessing's pool of forks",
    ),
    Case(
        "raised_in_a_pool",
        coded(
            "import multiprocessing, sys, types\n"
            "def fail(number):\n    raise pb_utils.TritonModelException(f'on purpose {number}')\n"
            "module = types.ModuleType('conformance_fails')\n"
            "module.fail, fail.__module__, fail.__qualname__ = fail, 'conformance_fails', 'fail'\n"
            "sys.modules['conformance_fails'] = module\n"
            "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
            "    try:\n        pool.map_async(fail, range(1)).get(10)\n"
            "    except pb_utils.TritonModelException as error:\n"
            "        return [say(str(error))]"
        ),
        "A31",
        "an exception of pb_utils crosses processes",
    ),
)
