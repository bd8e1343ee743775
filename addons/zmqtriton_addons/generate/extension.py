"""The routes of generate and of infer_stream."""

from __future__ import annotations

from zmqtriton_addons.generate.infer_stream import InferStream
from zmqtriton_addons.generate.responders import Generate
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.http_api import HttpExtension, Inference, Route

_MODEL = "/v2/models/{model:name}"


def _routes(gateway: Gateway) -> list[Route]:
    inference = Inference(gateway)
    generate = Generate(inference)
    responders = {
        "generate": generate.generate,
        "generate_stream": generate.generate_stream,
        "infer_stream": InferStream(inference).infer_stream,
    }
    return [
        Route("POST", f"{model}/{verb}", "inference", responder)
        for verb, responder in responders.items()
        for model in (_MODEL, f"{_MODEL}/versions/{{version:number}}")
    ]


EXTENSION = HttpExtension(routes=_routes)
