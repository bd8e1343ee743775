import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """TOLD is what the request says of itself, as JSON."""

    def execute(self, requests):
        return [self._tell(request) for request in requests]

    def _tell(self, request):
        report = {
            "id": request.request_id(),
            "correlation": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters()),
            "outputs": sorted(request.requested_output_names()),
        }
        output = pb_utils.Tensor("TOLD", np.array([json.dumps(report).encode()], dtype=np.object_))
        return pb_utils.InferenceResponse(output_tensors=[output], parameters={"a": 1, "b": True})
