"""The metrics frontend: a process of its own, apart from HTTP's TLS and --allow-http.

`exposition.py` is the text, `server.py` the smallest HTTP that Prometheus needs.
"""

from zmqtriton.sdk import AddOn, Process

ADDON = AddOn(
    "metrics",
    process=Process(".", title="Metrics", is_on_demand=True),
    offers={
        "embedded.scraper": ".scraper:Scraper",
        "supervisor.feature": (".client_counts:ClientCounts", ".loop_table:LoopTable"),
    },
)
