"""Which number is in this picture? Finds digits, and asks the ensemble for all at once (BLS)."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils

#: Columns without ink between two digits.
GAP = 6


class TritonPythonModel:
    async def execute(self, requests):
        return await asyncio.gather(*map(self.read, requests))

    async def read(self, request):
        picture = pb_utils.get_input_tensor_by_name(request, "PICTURE").as_numpy()
        crops = split(picture)
        if not crops:
            error = pb_utils.TritonError("nothing is written there")
            return pb_utils.InferenceResponse(error=error)
        digits = await asyncio.gather(*map(self.digit, crops))
        number = "".join(str(digit) for digit, _ in digits)
        outputs = {
            "NUMBER": np.array([number.encode()], object),
            "PROBABILITY": np.array([np.prod([each for _, each in digits])], np.float32),
        }
        tensors = [pb_utils.Tensor(name, value) for name, value in outputs.items()]
        return pb_utils.InferenceResponse(tensors)

    async def digit(self, crop):
        request = pb_utils.InferenceRequest(
            model_name="digit",
            requested_output_names=["DIGIT", "PROBABILITY"],
            inputs=[pb_utils.Tensor("CROP", crop[np.newaxis])],
        )
        response = await request.async_exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        # Triton returns outputs in an order of its own
        names = ("DIGIT", "PROBABILITY")
        tensors = [pb_utils.get_output_tensor_by_name(response, name) for name in names]
        return [tensor.as_numpy().item() for tensor in tensors]


def split(picture):
    """Return the part of the picture of each digit, from left to right."""
    columns = np.flatnonzero((picture < 160).any(0))
    if not len(columns):
        return []
    parts = np.split(columns, np.flatnonzero(np.diff(columns) > GAP) + 1)
    return [np.ascontiguousarray(picture[:, part[0] : part[-1] + 1]) for part in parts]
