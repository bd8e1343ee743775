"""Hits are those that scikit-learn finds when it is called directly."""

from pathlib import Path

import joblib
import pytest

QUERIES = "remove a directory with everything in it", "wait for several threads", "parse a date"


def test_hits_are_those_of_the_index(make, serve, here: Path) -> None:
    make("train.py", "index.joblib")
    embed, judge, vectors, names, _ = joblib.load(here / "index.joblib")
    server = serve("search.py")
    for query in QUERIES:
        hits = server.ask("search", {"query": query, "limit": 5})["output"]
        modules = server.ask("module_of", {"text": query})["output"]

        likenesses = (embed.transform([query]) @ vectors.T)[0]
        best = likenesses.argsort()[::-1][:5]
        assert [names[at] for at in best] == [hit["name"] for hit in hits]
        assert [hit["likeness"] for hit in hits] == pytest.approx(likenesses[best], abs=1e-3)
        assert judge.predict(embed.transform([query]))[0] == max(modules, key=modules.get)
