"""A collection of one's own, with all that it needs: rows and their vectors in memory."""

from __future__ import annotations

import operator

import numpy as np

from boolattn.stores.foreign import Collection

RANGES = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


class ArrayCollection(Collection):
    """An array of vectors with a list of rows; the id of a row is its place."""

    def __init__(self, vectors, rows, metric="cosine", **fields):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        self._vectors = vectors / lengths if metric == "cosine" else vectors
        self._rows, self._similarity = rows, metric
        super().__init__("memory", "rows", **fields)
        self.name = "the array"

    def connect(self, client):
        """Vectors need no connection."""

    def describe(self):
        return {}, [""], {"vector": (self._vectors.shape[1], self._similarity)}, []

    def get(self, ids, *names):
        rows = {number: self._rows[number] for number in ids if number in range(len(self._rows))}
        if not names:
            return rows
        return {number: {"vector": self._vectors[number]} for number in rows}

    def search(self, field, queries, n, where, *names):
        numbers = [number for number, row in enumerate(self._rows) if passes(row, where)]
        answers = []
        for query in queries:
            scores = self._vectors[numbers] @ query
            order = np.argsort(-scores, kind="stable")[:n]
            answers.append([(numbers[place], float(scores[place]), {}) for place in order])
        return answers


def passes(row, where):
    return all(meets(row, condition) for condition in where.conditions)


def meets(row, condition):
    value, kind, values = row.get(condition.name), condition.kind, condition.values
    if kind in RANGES:
        holds = value is not None and RANGES[kind](value, values[0])
    elif kind == "exists":
        holds = (value is not None) == values[0]
    else:
        holds = (value in values) == (kind == "in")
    return holds != condition.is_negated
