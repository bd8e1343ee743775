"""The steps of both protocols before an inference is sent: find, admit, trace."""

from typing import TYPE_CHECKING

from zmqtriton_floor.lazy_names import lazy_names

#: The names for add-ons, by module.
_NAMES = {
    "admission": "CheckedRequest Copy MAX_NAME NO_OPTIONS SchedulingOptions check_parameter_name "
    "count_none reported texts_of",
    "catalogue": "Catalogue parse_version",
    "classification": "Classes NO_CLASSES classify",
    "client_regions": "NO_PLACES RegionContents RegionSlice",
    "load_on_demand": "NotLoaded attempt",
    "load_metrics": "utilization",
    "model_version": "ModelVersion Trial",
    "open_sequences": "OpenSequences",
    "request_trace": "now_ns",
    "restrictions": "by_category",
    "stage_times": "Stages",
}

if TYPE_CHECKING:
    from zmqtriton_frontends.inference.admission import (
        MAX_NAME,
        NO_OPTIONS,
        CheckedRequest,
        Copy,
        SchedulingOptions,
        check_parameter_name,
        count_none,
        reported,
        texts_of,
    )
    from zmqtriton_frontends.inference.catalogue import (
        Catalogue,
        parse_version,
    )
    from zmqtriton_frontends.inference.classification import NO_CLASSES, Classes, classify
    from zmqtriton_frontends.inference.client_regions import NO_PLACES, RegionContents, RegionSlice
    from zmqtriton_frontends.inference.load_metrics import utilization
    from zmqtriton_frontends.inference.load_on_demand import NotLoaded, attempt
    from zmqtriton_frontends.inference.model_version import ModelVersion, Trial
    from zmqtriton_frontends.inference.open_sequences import OpenSequences
    from zmqtriton_frontends.inference.request_trace import now_ns
    from zmqtriton_frontends.inference.restrictions import by_category
    from zmqtriton_frontends.inference.stage_times import Stages
else:
    __getattr__ = lazy_names(__name__, _NAMES)
