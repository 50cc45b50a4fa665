"""The best scalar quantizers there can be for a known distribution, and the bound below all of them: what kvquant's
measured errors are set beside."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Density:
    """Symmetric around 0."""

    pdf: Function
    upper: Function  # probability of more than x, for x >= 0
    first: Function  # integral of x * pdf from x to infinity
    variance: float
    reach: float  # beyond it nothing matters in double precision, or little

    def mass(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Probability of [a, b] for 0 <= a < b."""
        return self.upper(a) - self.upper(b)

    def moment(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.first(a) - self.first(b)


def _gaussian() -> Density:
    def pdf(x: np.ndarray) -> np.ndarray:
        return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    erfc = np.vectorize(math.erfc, otypes=[float])
    return Density(pdf, lambda x: erfc(x / math.sqrt(2)) / 2, pdf, 1.0, 12.0)


def _laplace() -> Density:
    def upper(x: np.ndarray) -> np.ndarray:
        return np.exp(-x) / 2

    def first(x: np.ndarray) -> np.ndarray:  # at infinity 0 * infinity would be no number
        return np.where(np.isinf(x), 0.0, (1 + np.where(np.isinf(x), 0.0, x)) * upper(x))

    return Density(upper, upper, first, 2.0, 60.0)


def _student5() -> Density:
    scale = 8 / (3 * math.pi * math.sqrt(5))

    def pdf(x: np.ndarray) -> np.ndarray:
        return scale * (1 + x * x / 5) ** -3.0

    def upper(x: np.ndarray) -> np.ndarray:
        angle = np.arctan(np.asarray(x) / math.sqrt(5))
        sine, cosine = np.sin(angle), np.cos(angle)
        return 0.5 - (angle + sine * cosine * (1 + 2 * cosine**2 / 3)) / math.pi

    return Density(pdf, upper, lambda x: scale * 5 / 4 * (1 + x * x / 5) ** -2.0, 5 / 3, 400.0)


GAUSSIAN, LAPLACE, STUDENT5 = _gaussian(), _laplace(), _student5()


@functools.cache
def lloyd_max(density: Density, levels: int) -> float:
    """Mean square error of the optimal quantizer with an even number of levels, relative to the variance.

    Every level is the mean of its cell, every edge the middle between its levels: Newton's method on the positive
    half, begun at the levels that are optimal for very many of them.
    """
    half = levels // 2
    grid = np.linspace(0, density.reach, 400_001)
    share = np.cumsum(np.cbrt(density.pdf(grid)))
    level = np.interp((np.arange(half) + 0.5) / half, share / share[-1], grid)
    for _ in range(100):
        inner = (level[:-1] + level[1:]) / 2
        a, b = np.concatenate([[0.0], inner]), np.concatenate([inner, [np.inf]])
        mass = density.mass(a, b)
        mean = density.moment(a, b) / mass
        # How a cell's mean moves with its two edges; the outermost edges stay.
        lower = np.concatenate([[0.0], density.pdf(inner) * (mean - a)[1:] / mass[1:]]) / 2
        upper = np.concatenate([density.pdf(inner) * (b - mean)[:-1] / mass[:-1], [0.0]]) / 2
        slope = np.eye(half) - np.diag(lower + upper) - np.diag(lower[1:], -1) - np.diag(upper[:-1], 1)
        step = np.linalg.solve(slope, mean - level)
        moved = level + step
        # Far from the solution a whole step can leave the order: the cells' means are then the better guess.
        level = moved if moved[0] > 0 and np.all(np.diff(moved) > 0) else mean
        if np.max(np.abs(step)) < 1e-12 * density.reach:
            break
    return 1 - 2 * float(np.sum(mass * mean**2)) / density.variance


@functools.cache
def shannon_factor(density: Density) -> float:
    """F of Shannon's lower bound: no code of R bits an element has a relative error below F * 4**-R."""
    grid = np.linspace(-density.reach, density.reach, 2_000_001)
    pdf = density.pdf(np.abs(grid))
    terms = np.where(pdf > 0, -pdf * np.log2(np.where(pdf > 0, pdf, 1)), 0)
    entropy = float(np.sum(terms) * (grid[1] - grid[0]))
    return 2 ** (2 * entropy) / (2 * math.pi * math.e * density.variance)
