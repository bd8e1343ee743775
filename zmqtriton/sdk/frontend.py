"""Frontends: routes of HTTP, steps of requests, and the way of a request to its model.

Extensions of HTTP, steps, and processes of add-ons that serve clients import this. Documents of
clients are read with `await json_documents.read(req.hold, body, parse)`, and written with `pieces`,
in `perform` if they may be large. `Threads` do long work, and `Tasks` keep the tasks of an owner.
"""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

if TYPE_CHECKING:
    from zmqtriton_frontends.access import bearer_tokens as bearer_tokens, refusals as refusals
    from zmqtriton_frontends.entrance.ask import (
        Ask as Ask,
        Content as Content,
        TakesLong as TakesLong,
    )
    from zmqtriton_frontends.entrance.entrance import Entrance as Entrance
    from zmqtriton_frontends.gateway.gateway import Gateway as Gateway
    from zmqtriton_frontends.gateway.readiness import Readiness as Readiness
    from zmqtriton_frontends.gateway.streams import StreamItem as StreamItem
    from zmqtriton_frontends.http_api import app as app
    from zmqtriton_frontends.http_api.asgi import problems as problems
    from zmqtriton_frontends.http_api.asgi.access import Route as Route, AccessRules as AccessRules
    from zmqtriton_frontends.http_api.asgi.request import (
        HttpRequest as HttpRequest,
        TooLarge as TooLarge,
    )
    from zmqtriton_frontends.http_api.extension import (
        EndpointParts as EndpointParts,
        HttpExtension as HttpExtension,
        Operation as Operation,
        RouteDescriptions as RouteDescriptions,
        JsonSchema as JsonSchema,
    )
    from zmqtriton_frontends.http_api.inference import (
        infer as infer,
        infer_request as infer_request,
        json_documents as json_documents,
        response_encoding as response_encoding,
        tensor_data as tensor_data,
    )
    from zmqtriton_frontends.http_api.inference.infer import HttpEntrance as HttpEntrance
    from zmqtriton_frontends.http_api.server.asgi_exchange import Upgraded as Upgraded
    from zmqtriton_frontends.inference import admission as admission
    from zmqtriton_frontends.inference.admission import CheckedRequest as CheckedRequest
    from zmqtriton_frontends.inference.load_metrics import utilization as utilization
    from zmqtriton_frontends.inference.load_on_demand import NotLoaded as NotLoaded
    from zmqtriton_frontends.inference.model_version import ModelVersion as ModelVersion
    from zmqtriton_frontends.inference.open_sequences import OpenSequences as OpenSequences
    from zmqtriton_frontends.inference.request_trace import now_ns as now_ns
    from zmqtriton_frontends.inference.restrictions import by_category as by_category
    from zmqtriton_frontends.inference.stage_times import Stages as Stages
    from zmqtriton_frontends.process import request_log as request_log
    from zmqtriton_frontends.process.allocator import unused_of as unused_of
    from zmqtriton_frontends.process.arrivals import Arrivals as Arrivals
    from zmqtriton_frontends.process.futures import Tasks as Tasks, wake as wake
    from zmqtriton_frontends.process.handshakes import not_after_s as not_after_s
    from zmqtriton_frontends.process.own_threads import Threads as Threads
    from zmqtriton_frontends.process.room import max_connections as max_connections
    from zmqtriton_frontends.serving.page_server import PageServer as PageServer
    from zmqtriton_frontends.process.ledger import Ledger as Ledger, Share as Share
    from zmqtriton_frontends.tensors.arena_body import (
        ArenaBody as ArenaBody,
        ArenaBuffer as ArenaBuffer,
        ByteBudget as ByteBudget,
        MIN_BYTES as MIN_BYTES,
    )
    from zmqtriton_frontends.gateway.pending import Pending as Pending, Sink as Sink
    from zmqtriton_frontends.inference.client_regions import (
        RegionContents as RegionContents,
        RegionSlice as RegionSlice,
    )
    from zmqtriton_frontends.process.turns import (
        RequestShares as RequestShares,
        TaskTurn as TaskTurn,
    )
    from zmqtriton_frontends.gateway.loads import load as load
else:
    __getattr__ = lazy_names(__name__)
