"""Raw samples: measure → contender → one number a round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


class Samples:
    """Collects numbers; nothing is thrown away before the report."""

    def __init__(self) -> None:
        self.by_measure: dict[str, dict[str, list[float]]] = {}

    def add(self, measure: str, contender: str, value: float) -> None:
        self.by_measure.setdefault(measure, {}).setdefault(contender, []).append(value)

    def extend(self, other: Samples) -> None:
        for measure, contenders in other.by_measure.items():
            for contender, values in contenders.items():
                for value in values:
                    self.add(measure, contender, value)

    @classmethod
    def of(cls, by_measure: Mapping[str, Mapping[str, list[float]]]) -> Samples:
        """Samples as read from a saved file."""
        samples = cls()
        samples.by_measure = {key: dict(contenders) for key, contenders in by_measure.items()}
        return samples


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the `values` lie (nearest rank); `values` must not be empty."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
