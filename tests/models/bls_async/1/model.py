import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Asks identity_fp32 COUNT times at once; OUTPUT holds each answer's only number, in order."""

    async def execute(self, requests):
        return [await self._ask_many(request) for request in requests]

    async def _ask_many(self, request):
        count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
        waiting = [self._request(number).async_exec() for number in range(count)]
        responses = await asyncio.gather(*waiting)
        numbers = [
            pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()[0]
            for response in responses
        ]
        output = pb_utils.Tensor("OUTPUT", np.array(numbers, dtype=np.float32))
        return pb_utils.InferenceResponse(output_tensors=[output])

    def _request(self, number):
        return pb_utils.InferenceRequest(
            model_name="identity_fp32",
            requested_output_names=["OUTPUT0"],
            inputs=[pb_utils.Tensor("INPUT0", np.array([number], dtype=np.float32))],
        )
