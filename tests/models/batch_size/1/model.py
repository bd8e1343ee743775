import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """REQUESTS and ROWS of the batch, for each of its rows."""

    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        total = sum(len(rows) for rows in inputs)
        return [
            pb_utils.InferenceResponse(
                output_tensors=[
                    self.repeated("REQUESTS", len(requests), len(rows)),
                    self.repeated("ROWS", total, len(rows)),
                ]
            )
            for rows in inputs
        ]

    def repeated(self, name, value, rows):
        return pb_utils.Tensor(name, np.full((rows, 1), value, dtype=np.int32))
