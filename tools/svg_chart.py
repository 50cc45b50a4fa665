"""Line charts as SVG text: a few kilobytes, the same bytes from the same figures, and no package needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#555555"]  # told apart by all
LEFT, TOP, BOTTOM = 76, 34, 46  # margins of a panel
PLOT_WIDTH, PLOT_HEIGHT, LEGEND = 370, 310, 170


@dataclass
class Curve:
    name: str
    points: list[tuple[float, float]]  # in order of x; y > 0
    dashed: bool = False  # a bound or an optimum rather than a measurement: no marks


@dataclass
class Panel:
    y_name: str
    curves: list[Curve]  # the same names in every panel of a chart


def _text(x: float, y: float, words: str, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str = 'stroke="#dddddd"') -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def _style(number: int, curve: Curve) -> str:
    dashes = ' stroke-dasharray="5 4"' if curve.dashed else ""
    return f'fill="none" stroke="{COLORS[number % len(COLORS)]}" stroke-width="1.5"{dashes}'


def _mark(x: float, y: float, number: int) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLORS[number % len(COLORS)]}"/>'


def _panel(panel: Panel, left: float, x_name: str, x_ticks: list[str] | None) -> list[str]:
    right, bottom = left + PLOT_WIDTH, TOP + PLOT_HEIGHT
    x_max = max(math.ceil(max(x for curve in panel.curves for x, _ in curve.points)), 1)
    exponents = [math.log10(y) for curve in panel.curves for _, y in curve.points]
    low = math.floor(min(exponents) + 1e-9)
    high = max(math.ceil(max(exponents)), low + 1)

    def at_x(x: float) -> float:
        return left + PLOT_WIDTH * x / x_max

    def at_y(exponent: float) -> float:
        return bottom - PLOT_HEIGHT * (exponent - low) / (high - low)

    parts = []
    for exponent in range(low, high + 1):
        name = f"{10**exponent}" if 0 <= exponent <= 3 else f"1e{exponent}"
        parts.append(_line(left, at_y(exponent), right, at_y(exponent)))
        parts.append(_text(left - 8, at_y(exponent) + 4, name, "end"))
        if high - low <= 3 and exponent < high:
            inner = [at_y(exponent + math.log10(n)) for n in range(2, 10)]
            parts += [_line(left, y, right, y, 'stroke="#eeeeee"') for y in inner]
    for x in range(x_max + 1):
        parts.append(_line(at_x(x), TOP, at_x(x), bottom))
        parts.append(_text(at_x(x), bottom + 16, str(x) if x_ticks is None else x_ticks[x] if x < len(x_ticks) else ""))
    parts.append(_text((left + right) / 2, bottom + BOTTOM - 10, x_name))
    middle, edge = TOP + PLOT_HEIGHT / 2, left - 50
    parts.append(_text(edge, middle, panel.y_name, extra=f' transform="rotate(-90 {edge:.1f} {middle:.1f})"'))
    for number, curve in reversed(list(enumerate(panel.curves))):  # the first one on top
        places = [(at_x(x), at_y(math.log10(y))) for x, y in curve.points]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{points}" {_style(number, curve)}/>')
        parts += [_mark(x, y, number) for x, y in places if not curve.dashed]
    return parts


def log_chart(title: str, x_name: str, panels: list[Panel], x_ticks: list[str] | None = None) -> str:
    """Panels side by side under one title and with one legend. x from 0, linear, named by x_ticks if they are given
    (a point at 2 stands over the third); y in powers of ten."""
    legend = len(panels) * (LEFT + PLOT_WIDTH) + 14
    longest = max((len(curve.name) for curve in panels[0].curves), default=0)
    width, height = legend + max(LEGEND, 40 + 7 * longest), TOP + PLOT_HEIGHT + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#222222">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(width / 2, 20, title, extra=' font-size="14"'),
    ]
    for at, panel in enumerate(panels):
        parts += _panel(panel, LEFT + at * (LEFT + PLOT_WIDTH), x_name, x_ticks)
    for number, curve in enumerate(panels[0].curves):
        y = TOP + 12 + 20 * number
        parts.append(_line(legend, y, legend + 26, y, _style(number, curve)))
        if not curve.dashed:
            parts.append(_mark(legend + 13, y, number))
        parts.append(_text(legend + 32, y + 4, curve.name, "start"))
    return "\n".join([*parts, "</svg>", ""])
