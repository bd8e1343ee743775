"""The model of every program. `program.json` next to it has its steps.

It holds arrays over later requests as the steps say, and compares them with its own copies, again
and again. Each look is a byte in `looks`, each array that has changed a line in `changed`, both in
the directory that the program names.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from arrays import difference, mark
from interpreter import Call, Fill, Keep, Pass, Pause, Send, State, steps_of

FINAL = 1
#: The most requests that an array is kept for, and the most arrays.
_MOST_REQUESTS, _MOST_KEPT = 14, 8
#: Seconds between two looks of the thread.
_PAUSE_S = 0.4
_ANY_CALL = 1 << 32
_KEPT = []
_lock = threading.Lock()


class _Kept:
    """An array that is held, and the copy that it must stay equal to."""

    def __init__(self, array, call, place, is_final):
        self.array, self.call, self.place = array, call, place
        self.copy = array.copy()
        #: Nothing may write to it.
        self.is_final = is_final
        self.left = random.randrange(1, _MOST_REQUESTS)
        self.lock = threading.Lock()


class TritonPythonModel:
    """Performs the steps of its program."""

    #: In place of the file, for a model of the user's own process.
    program = None

    def initialize(self, args):
        path = Path(__file__).with_name("program.json")
        self._program = self.program or json.loads(path.read_text())
        self._steps = self._program["steps"]
        scratch = Path(self._program["scratch"])
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._looks = os.open(scratch / "looks", flags, 0o666)
        self._changed = os.open(scratch / "changed", flags, 0o666)
        self._name = args["model_instance_name"]
        self._own, self._threads = [], []
        self._is_over = threading.Event()
        self._looker = threading.Thread(target=self._watch, daemon=True)
        self._looker.start()
        self._pool = ThreadPoolExecutor(4)
        if self._program["is_async"]:
            self.execute = self._execute_async

    def finalize(self):
        self._is_over.set()
        self._looker.join()
        self._look(0, [*self._lists()], "at the end of its instance")
        self._pool.shutdown()
        for descriptor in (self._looks, self._changed):
            os.close(descriptor)

    # ------------------------------------------------------------------ requests

    def execute(self, requests):
        return self._responses([self._run(request) for request in requests])

    async def _execute_async(self, requests):
        return self._responses([await self._run_async(request) for request in requests])

    def _responses(self, responses):
        return None if self._program["is_streamed"] else responses

    def _run(self, request):
        run = _Run(self, request)
        answer = None
        while not run.is_over:
            effect = run.next(answer)
            answer = None if run.is_over else self._made(run, effect)
        return run.end()

    async def _run_async(self, request):
        run = _Run(self, request)
        answer = None
        while not run.is_over:
            effect = run.next(answer)
            if run.is_over:
                break
            if isinstance(effect, Call):
                answer = await self._call_async(effect, run.call)
            else:
                answer = self._made(run, effect)
        return run.end()

    def _made(self, run, effect):
        if isinstance(effect, Call):
            return self._call(effect, run.call)
        return run.perform(effect)

    # --------------------------------------------------------------------- calls

    def _call(self, effect, call):
        requests = [_request(*one, call) for one in zip(effect.models, effect.inputs)]
        if effect.mode == "thread":
            return [*self._pool.map(lambda one: _outputs(one.exec()), requests)]
        if effect.mode == "decoupled":
            streams = [request.exec(decoupled=True) for request in requests]
            return [_all_outputs(stream) for stream in streams]
        if effect.mode == "async":
            return asyncio.run(self._gather(requests))
        return [_outputs(request.exec()) for request in requests]

    async def _call_async(self, effect, call):
        requests = [_request(*one, call) for one in zip(effect.models, effect.inputs)]
        if effect.mode == "decoupled":
            answers = []
            for request in requests:
                stream = await request.async_exec(decoupled=True)
                answers.append(_all_outputs(stream))
            return answers
        return await self._gather(requests)

    @staticmethod
    async def _gather(requests):
        responses = await asyncio.gather(*(request.async_exec() for request in requests))
        return [_outputs(response) for response in responses]

    # ---------------------------------------------------------------------- kept

    def keep(self, array, where, call, is_final):
        kept = _Kept(array, call, f"{where} of {self._name}", is_final)
        with _lock:
            {"global": _KEPT, "self": self._own, "thread": self._threads}[where].append(kept)

    def _lists(self):
        with _lock:
            return [*self._own, *_KEPT, *self._threads]

    def age(self, call):
        """Look at some arrays, change some, and forget those that were kept long enough."""
        looked, gone = [], []
        with _lock:
            for kept in (self._own, _KEPT, self._threads):
                for one in [*kept]:
                    one.left -= 1
                    if one.left < 0 or len(kept) > _MOST_KEPT:
                        kept.remove(one)
                        gone.append(one)
                if kept:
                    number = min(len(kept), self._program["looks"])
                    looked.extend(random.sample([*kept], number))
        self._look(call, looked + gone, "during a later request")
        # of threads another one may be about to send what this one would change
        if looked and not random.randrange(4) and self._program.get("instances") != "threads":
            self._write(looked[0])

    def _write(self, one):
        with one.lock:
            if not one.is_final and one.array.flags.writeable:
                mark(one.array, 1)
                mark(one.copy, 1)

    def _watch(self):
        while not self._is_over.wait(_PAUSE_S):
            with _lock:
                kept = [*self._threads]
            self._look(0, kept, "in a thread")

    def _look(self, call, kept, when):
        for one in kept:
            with one.lock:
                changes = difference(one.copy, one.array, _ANY_CALL)
            if changes:
                report = {
                    "model": self._program["name"],
                    "place": one.place,
                    "of_call": one.call,
                    "in_call": call,
                    "when": when,
                    "found": changes,
                    "ns": time.time_ns(),
                }
                os.write(self._changed, json.dumps(report).encode() + b"\n")
                with one.lock:
                    one.copy = one.array.copy()
        if kept:
            os.write(self._looks, b"." * len(kept))


class _Run:
    """One request."""

    def __init__(self, model, request):
        self._model = model
        arrays = {tensor.name(): tensor for tensor in request.inputs()}
        call = arrays.pop("CALL", None)
        #: 0 for a step of an ensemble behind a stream.
        self.call = 0 if call is None else int(call.as_numpy()[0])
        model.age(self.call)
        state = arrays.pop("BEFORE", None)
        inputs = [arrays[name].as_numpy() for name in sorted(arrays)]
        self._steps = steps_of(model._steps, inputs, state and state.as_numpy())
        is_streamed = model._program["is_streamed"]
        self._sender = request.get_response_sender() if is_streamed else None
        self._kept = []
        #: The addresses of arrays that nothing may write to after they were sent.
        self._filled = []
        self._response = None
        self._states = []
        self.is_over = False

    def next(self, answer):
        try:
            return self._steps.send(answer)
        except StopIteration:
            self.is_over = True
            return None

    def perform(self, effect):
        if isinstance(effect, Keep):
            self._kept.append(effect)
        elif isinstance(effect, Pause):
            time.sleep(effect.milliseconds / 1000)
        elif isinstance(effect, State):
            self._states.append(pb_utils.Tensor("AFTER", effect.array))
        elif isinstance(effect, Pass):
            capsule = pb_utils.Tensor("PASSED", effect.array).to_dlpack()
            return pb_utils.Tensor.from_dlpack("PASSED", capsule).as_numpy()
        elif isinstance(effect, Fill):
            array = pb_utils.Tensor.empty("FILLED", effect.array.shape, np.uint64).as_numpy()
            array[:] = effect.array
            self._filled.append(array)
            return array
        elif isinstance(effect, Send):
            tensors = [pb_utils.Tensor(f"OUT{n}", array) for n, array in enumerate(effect.arrays)]
            response = pb_utils.InferenceResponse(tensors + self._states)
            if self._sender is None:
                self._response = response
            else:
                self._sender.send(response)
        return None

    def end(self):
        """Copy the arrays that are kept, which no step changes any more, and answer."""
        for number, (array, where) in enumerate(self._kept):
            others = [one.array for n, one in enumerate(self._kept) if n != number]
            is_final = any(np.may_share_memory(array, one) for one in self._filled + others)
            self._model.keep(array, where, self.call, is_final)
        if self._sender is not None:
            self._sender.send(flags=FINAL)
        return self._response


def _request(model, arrays, call):
    tensors = [pb_utils.Tensor("CALL", np.array([call], np.uint64))]
    tensors += [pb_utils.Tensor(f"IN{number}", array) for number, array in enumerate(arrays)]
    name, _, outputs = model.partition(":")
    return pb_utils.InferenceRequest(
        model_name=name,
        requested_output_names=[f"OUT{number}" for number in range(int(outputs))],
        inputs=tensors,
    )


def _outputs(response):
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    tensors = {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
    return [[tensors[name] for name in sorted(tensors)]]


def _all_outputs(stream):
    answers = []
    for response in stream:
        if response.has_error() or response.output_tensors():
            answers += _outputs(response)
    return answers
