import json
import os
import queue
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class Stream:
    """One request's stream and how far it is."""

    def __init__(self, request):
        delay = pb_utils.get_input_tensor_by_name(request, "DELAY_US")
        self.id = request.request_id()
        self.sender = request.get_response_sender()
        self.count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
        self.delay = 0.0 if delay is None else int(delay.as_numpy()[0]) / 1e6
        self.sent = 0

    def step(self):
        """Sends the next token; false when that was the last one."""
        if self.sent >= self.count:
            self.sender.send(flags=FINAL)
            return False
        index = self.sent
        token = np.array([b"token%d" % index], dtype=object)
        response = pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("TOKEN", token),
                pb_utils.Tensor("INDEX", np.array([index], dtype=np.int32)),
            ]
        )
        self.sent += 1
        if self.sent < self.count:
            self.sender.send(response)
            return True
        self.sender.send(response, flags=FINAL)
        return False


class TritonPythonModel:
    """execute() only takes requests in; a thread goes round all that are open, a token each."""

    def initialize(self, args):
        path = json.loads(args["model_config"])["parameters"]["JOURNAL"]["string_value"]
        self._journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._arrivals = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def execute(self, requests):
        for request in requests:
            self._arrivals.put(Stream(request))
        return None

    def _run(self):
        streams = []
        while True:
            while not (streams and self._arrivals.empty()):
                stream = self._arrivals.get()
                if stream is None:
                    return
                streams.append(stream)
            time.sleep(max(stream.delay for stream in streams))
            streams = [stream for stream in streams if self._advance(stream)]

    def _advance(self, stream):
        if stream.sender.is_cancelled():
            self._write("cancelled", stream.id)
            stream.sender.send(flags=FINAL)
            return False
        return stream.step()

    def _write(self, event, name):
        record = {"event": event, "id": name, "pid": os.getpid(), "ns": time.monotonic_ns()}
        # One write each: with O_APPEND a line is whole whatever happens to the process.
        os.write(self._journal, json.dumps(record).encode("utf-8") + b"\n")

    def finalize(self):
        self._arrivals.put(None)
        self._thread.join()
        os.close(self._journal)
