import json
import os
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def values_of(request):
    tensors = {t.name(): t.as_numpy() for t in request.inputs()}
    return {
        "id": request.request_id(),
        "flags": request.flags(),
        "correlation": request.correlation_id(),
        "outputs": sorted(request.requested_output_names()),
        "inputs": {
            name: [list(array.shape), str(array.dtype), repr(array.ravel().tolist())]
            for name, array in tensors.items()
        },
    }


class TritonPythonModel:
    """Tells a file in NOTES what it is given, and does what MODE says."""

    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self._name = args["model_instance_name"]
        self._mode = parameters.get("MODE", {}).get("string_value", "")
        path = parameters["NOTES"]["string_value"]
        self._notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._threads = []
        self._steps = 0

    def execute(self, requests):
        batch = [values_of(request) for request in requests]
        note = {"instance": self._name, "pid": os.getpid(), "batch": batch}
        os.write(self._notes, json.dumps(note).encode() + b"\n")
        return getattr(self, "_answer_" + self._mode, self._answer)(requests)

    def _answer(self, requests):
        output = pb_utils.Tensor("OUT", np.zeros((1, 1), np.float32))
        return [pb_utils.InferenceResponse([output]) for _ in requests]

    def _answer_large(self, requests):
        output = pb_utils.Tensor("OUT", np.zeros((1, 1 << 20), np.float32))
        return [pb_utils.InferenceResponse([output]) for _ in requests]

    def _answer_raise(self, requests):
        raise ValueError("too cold")

    def _answer_exit(self, requests):
        os._exit(3)

    def _answer_error(self, requests):
        error = pb_utils.TritonError("not warm")
        return [pb_utils.InferenceResponse(error=error) for _ in requests]

    def _answer_thread(self, requests):
        """Decoupled: many responses from another thread, after execute() has returned."""
        senders = [request.get_response_sender() for request in requests]

        def send():
            for sender in senders:
                for _ in range(200):
                    sender.send(self._answer([None])[0])
                sender.send(flags=FINAL)

        self._threads.append(threading.Thread(target=send))
        self._threads[-1].start()

    def _answer_forget(self, requests):
        """Decoupled: nobody says FINAL, and only the garbage collector ends it."""
        for request in requests:
            circle = [request.get_response_sender()]
            circle.append(circle)

    def _answer_again(self, requests):
        """Iterative: three steps."""
        self._steps += 1
        if self._steps % 3:
            for request in requests:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return [None] * len(requests)
        return self._answer(requests)

    def _answer_ask(self, requests):
        """Asks another model first."""
        for request in requests:
            answer = pb_utils.InferenceRequest(
                model_name="plain", inputs=request.inputs(), requested_output_names=["OUT"]
            ).exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
        return self._answer(requests)

    def finalize(self):
        os.close(self._notes)
