import json
import textwrap

import c_python_backend_utils
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Runs what CODE says, each element the body of a function, and reports what they return.

    An exception is reported as `Type: text`. A body that returns an InferenceResponse answers with
    it instead.
    """

    def initialize(self, args):
        self.names = {
            "pb_utils": pb_utils,
            "c_utils": c_python_backend_utils,
            "np": np,
            "json": json,
            "kept": {},
        }

    def execute(self, requests):
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        reports = []
        for code in pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy():
            value = self._run(code.decode(), request)
            if isinstance(value, pb_utils.InferenceResponse):
                return value
            reports.append(json.dumps(value, default=repr))
        report = np.array([report.encode() for report in reports], dtype=np.object_)
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("REPORT", report)])

    def _run(self, code, request):
        names = {**self.names, "request": request}
        try:
            exec("def body():\n" + textwrap.indent(code, "    "), names)
            return names["body"]()
        except Exception as error:  # noqa: BLE001 - it is what the test asks for
            return f"{type(error).__name__}: {error}"
        finally:
            names.clear()  # or the request would live until the garbage is collected
