"""Metadata, configurations and statistics of the server and its models.

The catalogue knows all but the counters, which are the broker's.
"""

from __future__ import annotations

from google.protobuf.json_format import ParseDict

from zmqtriton_frontends.access.bearer_tokens import check_model, may_see
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.grpc_api.control.reading import read
from zmqtriton_frontends.grpc_api.inference.convert import serialize
from zmqtriton_frontends.grpc_api.inference.response import field
from zmqtriton_frontends.inference.catalogue import parse_version
from zmqtriton_frontends.inference.load_on_demand import attempt
from zmqtriton_protos import message

_SERVER_METADATA = message("inference.ServerMetadataResponse")
_METADATA_REQUEST = message("inference.ModelMetadataRequest")
_METADATA = message("inference.ModelMetadataResponse")
_CONFIG_REQUEST = message("inference.ModelConfigRequest")
_STATISTICS_REQUEST = message("inference.ModelStatisticsRequest")
_STATISTICS = message("inference.ModelStatisticsResponse")
#: ModelConfigResponse.config: field 1, a message.
_CONFIG = b"\x0a"


class Models:
    """ServerMetadata, ModelMetadata, ModelConfig, ModelStatistics."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def server_metadata(self, _data: bytes, _call: Call) -> bytes:
        settings = self._gateway.settings
        return serialize(
            _SERVER_METADATA(
                name=settings.server.id,
                version=settings.server.server_version,
                extensions=settings.server.extensions,
            )
        )

    async def metadata(self, data: bytes, call: Call) -> bytes:
        request = read(_METADATA_REQUEST, data)
        check_model(call.grant, request.name)
        catalogue = self._gateway.catalogue
        metadata = await attempt(lambda: catalogue.metadata(request.name, request.version))
        return serialize(_METADATA(**metadata))

    async def config(self, data: bytes, call: Call) -> bytes:
        request = read(_CONFIG_REQUEST, data)
        check_model(call.grant, request.name)
        catalogue = self._gateway.catalogue
        model = await attempt(lambda: catalogue.find(request.name, request.version))
        return field(_CONFIG, model.config_proto)

    async def statistics(self, data: bytes, call: Call) -> bytes:
        request = read(_STATISTICS_REQUEST, data)
        if request.name:
            check_model(call.grant, request.name)
        version = -1
        self._gateway.catalogue.check_counted(request.name, request.version)
        if request.name and request.version:
            version = parse_version(request.version)
        answer = await self._gateway.statistics(request.name, version)
        shown = [s for s in answer["model_stats"] if may_see(call.grant, s["name"])]
        answer = {"model_stats": shown}
        return serialize(ParseDict(answer, _STATISTICS(), ignore_unknown_fields=True))
