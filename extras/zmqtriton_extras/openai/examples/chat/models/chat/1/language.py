"""A language model of n-grams: the next word by how often it followed the last ones in a text."""

import re
from pathlib import Path

import numpy as np

#: Words and signs of sentences.
WORD = re.compile(r"[a-z][a-z'-]*|[0-9]+|[.,;:!?()]")
#: The next word depends on so many before it.
ORDER = 4
#: Words that are so frequent say nothing about a subject.
COMMON = 80
#: Words of questions say nothing about it either.
ASKING = (
    "what how why who which when where does did can could you your me my tell about explain".split()
)


class LanguageModel:
    def __init__(self, words, text):
        """Set up with the different words, and the text as numbers of words."""
        self.words = list(words)
        self.text = np.asarray(text)
        self.numbers = {word: number for number, word in enumerate(self.words)}
        self.frequency = np.bincount(self.text, minlength=len(self.words))
        order = np.argsort(self.text, kind="stable")
        #: Where each word stands.
        self.places = np.split(order, np.cumsum(self.frequency)[:-1])
        self.common = set(np.argsort(-self.frequency)[:COMMON].tolist())
        self.common.update(self.numbers[word] for word in ASKING if word in self.numbers)
        ends = np.isin(self.text, [self.numbers[sign] for sign in ".!?" if sign in self.numbers])
        #: The sentence that each word is in, and where each sentence begins.
        self.sentence = np.concatenate([[0], np.cumsum(ends)[:-1]])
        self.begins = np.concatenate([[0], np.flatnonzero(ends)[:-1] + 1])

    @classmethod
    def load(cls, directory):
        with np.load(Path(directory) / "text.npz") as file:
            return cls(file["words"].tolist(), file["text"])

    def encode(self, text):
        """Return the words of a text that the model has read, as numbers."""
        return [self.numbers[word] for word in WORD.findall(text.lower()) if word in self.numbers]

    def probabilities(self, before):
        """Return the probability of each word after these.

        Of several orders, each trusts the shorter one as far as it has seen other words follow
        (Witten and Bell).
        """
        likely = self.frequency / self.frequency.sum()
        for length in range(1, ORDER):
            followers = self._followers(before[-length:]) if len(before) >= length else ()
            if not len(followers):
                break
            counts = np.bincount(followers, minlength=len(self.words))
            different = np.count_nonzero(counts)
            likely = (counts + different * likely) / (counts.sum() + different)
        return likely

    def _followers(self, last):
        """Return the words that follow these where they stand in the text."""
        places = self.places[last[-1]]
        places = places[(places >= len(last) - 1) & (places + 1 < len(self.text))]
        for back, number in enumerate(reversed(last[:-1]), 1):
            places = places[self.text[places - back] == number]
        return self.text[places + 1]

    def opening(self, question, random):
        """Return the begin of a sentence up to the subject of the question."""
        subject = [n for n in sorted(set(question) - self.common) if self.words[n].isalpha()]
        scores = np.zeros(len(self.begins))
        for number in subject:
            sentences = np.unique(self.sentence[self.places[number]])
            scores[sentences] += 1 / np.log2(2 + self.frequency[number])
        best = np.flatnonzero(scores == scores.max())
        chosen = random.choice(best)
        words = self.text[self.sentence == chosen].tolist()
        named = [place for place, number in enumerate(words) if number in subject]
        return words[: max(ORDER, named[0] + 1 if named else 0)]

    def choose(self, before, random, temperature, top_p):
        """Return the next word: the likeliest, or one by chance."""
        likely = self.probabilities(before)
        if temperature <= 0:
            return int(likely.argmax())
        likely = likely ** (1 / max(temperature, 0.05))
        order = np.argsort(-likely)
        summed = np.cumsum(likely[order]) / likely.sum()
        order = order[: np.searchsorted(summed, top_p) + 1]
        return int(random.choice(order, p=likely[order] / likely[order].sum()))


def spell(word, before):
    """Return a word as it stands in a text after the one before, or at its begin for ""."""
    if before in ("", ".", "!", "?"):
        word = word.capitalize()
    return word if before in ("", "(") or word in ".,;:!?)" else " " + word
