import triton_python_backend_utils as pb_utils

STEPS = [
    ("preprocessing", "image", "input_image"),
    ("core", "INPUT__0", "OUTPUT__0"),
    ("postprocessing", "INPUT__0", "result"),
]


class TritonPythonModel:
    """Calls one model after the other; the output of one is the input of the next."""

    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "image")
        for model, takes, gives in STEPS:
            call = pb_utils.InferenceRequest(
                model_name=model,
                requested_output_names=[gives],
                # another name for the same memory: nothing is copied between the models
                inputs=[pb_utils.Tensor(takes, tensor.as_numpy())],
            )
            response = await call.async_exec()
            if response.has_error():
                return pb_utils.InferenceResponse(error=response.error())
            tensor = pb_utils.get_output_tensor_by_name(response, gives)
        return pb_utils.InferenceResponse([tensor])
