import json
import textwrap

import c_python_backend_utils
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Runs what CODE says, each element the body of a function, and reports what they return.

    An exception is reported as `Type: text`. A body that returns an InferenceResponse answers with
    it instead, and one that returns Ellipsis has answered by itself.
    """

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self.names = {
            "pb_utils": pb_utils,
            "c_utils": c_python_backend_utils,
            "np": np,
            "json": json,
            "config": config,
            "args": args,
            "kept": {},
        }

    def execute(self, requests):
        responses = [self._respond(request) for request in requests]
        if not self.is_decoupled:
            return responses if any(responses) else None
        for request, response in zip(requests, responses):
            if response is not None:
                request.get_response_sender().send(response, flags=1)

    def _respond(self, request):
        reports = []
        for code in pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy():
            value = self._run(code.decode(), request)
            if value is Ellipsis:
                return None
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
