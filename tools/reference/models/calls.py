import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        inner = pb_utils.InferenceRequest(
            model_name="roots", inputs=request.inputs(), requested_output_names=["Y"]
        )
        response = await inner.async_exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(response, "Y")])
