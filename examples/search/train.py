"""Index the docstrings of Python's standard library, and learn which module a text is about.

A docstring becomes 150 numbers: its words by TF-IDF, reduced by an SVD (latent semantic analysis).
It takes 20 seconds, and no network.
"""

import ast
import sysconfig
from pathlib import Path

import joblib
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

LIBRARY = Path(sysconfig.get_path("stdlib"))
names, texts = [], []
for path in sorted([*LIBRARY.glob("[a-z]*.py"), *LIBRARY.glob("[a-z]*/[a-z]*.py")]):
    module = ".".join(path.relative_to(LIBRARY).with_suffix("").parts)
    if module.startswith(("test", "idlelib", "lib2to3", "site-packages", "dist-packages")):
        continue
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            text = ast.get_docstring(node) or ""
            if len(text) > 40:
                names.append(f"{module}.{node.name}")
                texts.append(text)

words = TfidfVectorizer(sublinear_tf=True, stop_words="english", ngram_range=(1, 2), min_df=2)
embed = make_pipeline(words, TruncatedSVD(150, random_state=0), Normalizer())
named = [f"{name.replace('.', ' ').replace('_', ' ')} {text}" for name, text in zip(names, texts)]
vectors = embed.fit_transform(named).astype("float32")

# the judge is not told the name
unnamed = embed.transform(texts)
packages = [name.split(".")[0] for name in names]
frequent = {package for package in packages if packages.count(package) >= 40}
known = [at for at, package in enumerate(packages) if package in frequent]
train, test = train_test_split(known, random_state=0)
judge = LogisticRegression(C=20, max_iter=500)
judge.fit(unnamed[train], [packages[at] for at in train])
score = judge.score(unnamed[test], [packages[at] for at in test])
print(f"{len(texts)} texts; the right of {len(frequent)} modules for {score:.0%} of {len(test)}")
joblib.dump((embed, judge, vectors, names, texts), Path(__file__).parent / "index.joblib")
