import json
import os
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sleeps MS milliseconds per row and returns its ID, with a record before and after.

    Below zero it waits for a file, which tests/journal.py makes.
    """

    def initialize(self, args):
        self._path = json.loads(args["model_config"])["parameters"]["JOURNAL"]["string_value"]
        self._journal = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        ids = pb_utils.get_input_tensor_by_name(request, "ID").as_numpy()
        pauses = pb_utils.get_input_tensor_by_name(request, "MS").as_numpy()
        for name, milliseconds in zip(ids.ravel(), pauses.ravel()):
            self._write("start", name)
            if milliseconds < 0:
                self._wait(request, name.decode())
            else:
                time.sleep(int(milliseconds) / 1000)
            self._write("end", name)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("ID", ids)])

    def _wait(self, request, name):
        while not os.path.exists(f"{self._path}.{name}"):
            if request.is_cancelled():
                open(f"{self._path}.{name}.cancelled", "w").close()
            time.sleep(0.005)

    def _write(self, event, name):
        record = {
            "event": event,
            "id": name.decode("utf-8"),
            "pid": os.getpid(),
            "ns": time.monotonic_ns(),
        }
        # One write each: with O_APPEND lines of several processes never mix, and a process that
        # is killed between two of them leaves no half line.
        os.write(self._journal, json.dumps(record).encode("utf-8") + b"\n")

    def finalize(self):
        os.close(self._journal)
