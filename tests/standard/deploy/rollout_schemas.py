"""Strict JSON schemas of the fields that deploy/kubernetes/rollout.yaml may use.

After the definitions of Argo Rollouts (v1.7) and of the Gateway API (v1), without those that nobody
needs here: a field that is missing here is refused, also if the definitions have it.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
_NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_DURATION: Schema = {"type": "string", "pattern": "^[0-9]+(s|m|h)$"}
_WEIGHT: Schema = {"type": "integer", "minimum": 0, "maximum": 100}


def fields(required: Schema, **optional: Schema) -> Schema:
    """Return the schema of an object that has these fields and no others."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": [*required],
        "additionalProperties": False,
    }


def items(of: Schema) -> Schema:
    return {"type": "array", "items": of, "minItems": 1}


def one_of(*choices: str) -> Schema:
    return {"enum": [*choices]}


def resource(version: str, kind: str, spec: Schema) -> Schema:
    labels = {"type": "object", "additionalProperties": TEXT}
    metadata = fields({"name": _NAME}, labels=labels)
    kinds = {"apiVersion": {"const": version}, "kind": {"const": kind}}
    return fields({**kinds, "metadata": metadata, "spec": spec})


_STEPS: dict[str, Schema] = {
    "setWeight": _WEIGHT,
    "pause": fields({}, duration=_DURATION),
    "setHeaderRoute": fields(
        {
            "name": _NAME,
            "match": items(
                fields(
                    {
                        "headerName": TEXT,
                        "headerValue": {
                            "anyOf": [fields({how: TEXT}) for how in ("exact", "prefix", "regex")]
                        },
                    }
                )
            ),
        }
    ),
}
_ROUTES = items(fields({"name": _NAME}, useHeaderRoutes={"type": "boolean"}))
_CANARY = fields(
    {
        "stableService": _NAME,
        "canaryService": _NAME,
        "trafficRouting": fields(
            {"plugins": fields({"argoproj-labs/gatewayAPI": fields({"httpRoutes": _ROUTES})})},
            managedRoutes=items(fields({"name": _NAME})),
        ),
        "steps": items({"anyOf": [fields({name: of}) for name, of in _STEPS.items()]}),
    },
    analysis=fields(
        {"templates": items(fields({"templateName": _NAME}))},
        startingStep={"type": "integer", "minimum": 0},
        args=items(
            fields(
                {"name": _NAME},
                value=TEXT,
                valueFrom=fields({"podTemplateHashValue": one_of("Stable", "Latest")}),
            )
        ),
    ),
)
ROLLOUT = resource(
    "argoproj.io/v1alpha1",
    "Rollout",
    fields(
        {
            "selector": fields({"matchLabels": {"type": "object"}}),
            "workloadRef": fields(
                {"apiVersion": TEXT, "kind": one_of("Deployment"), "name": _NAME},
                scaleDown=one_of("never", "onsuccess", "progressively"),
            ),
            "strategy": fields({"canary": _CANARY}),
        },
        replicas={"type": "integer", "minimum": 0},
    ),
)
ANALYSIS = resource(
    "argoproj.io/v1alpha1",
    "AnalysisTemplate",
    fields(
        {
            "metrics": items(
                fields(
                    {
                        "name": _NAME,
                        "provider": fields(
                            {"prometheus": fields({"address": TEXT, "query": TEXT})}
                        ),
                    },
                    interval=_DURATION,
                    failureLimit={"type": "integer", "minimum": 0},
                    successCondition=TEXT,
                    failureCondition=TEXT,
                )
            )
        },
        args=items(fields({"name": _NAME}, value=TEXT)),
    ),
)
HTTP_ROUTE = resource(
    "gateway.networking.k8s.io/v1",
    "HTTPRoute",
    fields(
        {
            "parentRefs": items(fields({"name": _NAME}, namespace=_NAME, sectionName=_NAME)),
            "rules": items(
                fields(
                    {
                        "backendRefs": items(
                            fields(
                                {"name": _NAME, "port": {"type": "integer"}},
                                weight={"type": "integer", "minimum": 0, "maximum": 1_000_000},
                            )
                        )
                    },
                    matches=items(
                        fields(
                            {},
                            path=fields(
                                {
                                    "type": one_of("Exact", "PathPrefix", "RegularExpression"),
                                    "value": {"type": "string", "pattern": "^/"},
                                }
                            ),
                        )
                    ),
                )
            ),
        },
        hostnames=items(TEXT),
    ),
)
SCHEMAS = {"Rollout": ROLLOUT, "AnalysisTemplate": ANALYSIS, "HTTPRoute": HTTP_ROUTE}
