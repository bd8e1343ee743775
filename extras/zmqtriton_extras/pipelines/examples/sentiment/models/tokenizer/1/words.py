"""Words and their numbers: 0 pads a row, 1 is every unknown word."""

import json
import os
import re

import numpy as np

UNKNOWN = 1


def split(text):
    return re.findall(r"[\w']+", text.lower())


class Vocabulary:
    def __init__(self, words, length):
        self.numbers = {word: number for number, word in enumerate(words)}
        self.length = length

    @classmethod
    def read(cls, recipe_file):
        """Read a recipe: the file of the words beside it, and the length of rows."""
        with open(recipe_file) as file:
            recipe = json.load(file)
        with open(os.path.join(os.path.dirname(recipe_file), recipe["vocabulary"])) as file:
            return cls(file.read().split(), int(recipe["max_seq_len"]))

    def encode(self, texts):
        """Return (numbers, which of them are words), a row for each text."""
        ids = np.zeros((len(texts), self.length), np.int64)
        for row, text in zip(ids, texts):
            numbers = [self.numbers.get(word, UNKNOWN) for word in split(text)[: self.length]]
            row[: len(numbers)] = numbers
        return ids, (ids != 0).astype(np.int64)
