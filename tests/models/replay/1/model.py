import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Streams with errors midway, with empty ends, or with no response at all."""

    def execute(self, requests):
        for request in requests:
            script = pb_utils.get_input_tensor_by_name(request, "SCRIPT").as_numpy()[0].decode()
            if not script or script[-1] not in "DEF":
                script += "F"
            sender = request.get_response_sender()
            for number, letter in enumerate(script):
                flags = FINAL if letter.isupper() else 0
                if letter == "F":
                    sender.send(flags=FINAL)
                else:
                    sender.send(self._response(number, letter), flags=flags)
        return None

    def _response(self, number, letter):
        if letter in "eE":
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"step {number} failed"))
        tensor = pb_utils.Tensor("STEP", np.array([number], dtype=np.int32))
        return pb_utils.InferenceResponse(output_tensors=[tensor])
