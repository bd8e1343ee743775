"""Ray Serve's page on scikit-learn: rows of a table by their columns, and a label for each."""

from zmqtriton import model


@model
class BoostingModel:
    def __init__(self) -> None:
        self.label_list = ["setosa", "versicolor", "virginica"]
        self.predict = lambda vectors: [int(vector[1] > 1) for vector in vectors]

    def __call__(self, rows: list[dict]) -> list[dict]:
        vectors = [[row["petal length"], row["petal width"]] for row in rows]
        return [{"result": self.label_list[n]} for n in self.predict(vectors)]
