"""A run's summary becomes a picture: a panel for each of the main measures, a bar for each system."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from bench.measures import MEASURES, Measure
from bench.table import FLOOR, OURS, Summary, number

SHOWN = ("one", "one_sync", "fifty", "bulk", "drain", "threads", "sleep", "latency_p99", "retry", "promote")
_COLUMNS = 2
_PANEL_WIDTH, _NAME_WIDTH, _FIGURE_WIDTH = 470, 105, 70
_BAR, _GAP, _HEAD, _MARGIN = 13, 4, 34, 24
_COLOURS = {OURS: "#d9480f", FLOOR: "#adb5bd"}
_PEER = "#4c6e91"


def svg(summary: Summary) -> str:
    """The picture."""
    panels = [(measure, list(_bars(summary, measure))) for measure in MEASURES if measure.key in SHOWN]
    panels = [(measure, bars) for measure, bars in panels if bars]
    tallest = max((len(bars) for _, bars in panels), default=0)
    height = _HEAD + tallest * (_BAR + _GAP) + _MARGIN
    rows = -(-len(panels) // _COLUMNS)
    width, total = _COLUMNS * (_PANEL_WIDTH + _MARGIN) + _MARGIN, 46 + rows * height
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" viewBox="0 0 {width} {total}" '
            'font-family="system-ui, sans-serif" font-size="11">'
        ),
        f'<rect width="{width}" height="{total}" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="26" font-size="15" font-weight="600" fill="#212529">firetime, its peers and the floor</text>',
        f'<text x="{width - _MARGIN}" y="26" text-anchor="end" fill="#868e96">{escape(_caption(summary))}</text>',
    ]
    for position, (measure, bars) in enumerate(panels):
        x = _MARGIN + (position % _COLUMNS) * (_PANEL_WIDTH + _MARGIN)
        y = 46 + (position // _COLUMNS) * height
        parts += _panel(measure, bars, x, y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _caption(summary: Summary) -> str:
    return f"{summary['server']}, {summary['machine']['cores']} cores, median of {summary['rounds']} rounds, {summary['made']}"


def _bars(summary: Summary, measure: Measure) -> Iterator[tuple[str, float]]:
    found = [
        (system["name"], system["figures"][measure.key])
        for system in summary["systems"]
        if measure.key in system["figures"]
    ]
    yield from sorted(found, key=lambda bar: bar[1], reverse=measure.more_is_better)


def _panel(measure: Measure, bars: list[tuple[str, float]], x: int, y: int) -> Iterator[str]:
    better = "more is better" if measure.more_is_better else "less is better"
    title = f"{measure.title.replace('`', '')} ({measure.unit}, {better})"
    yield f'<text x="{x}" y="{y + 16}" font-size="12" font-weight="600" fill="#343a40">{escape(title)}</text>'
    longest = max(figure for _, figure in bars) or 1
    room = _PANEL_WIDTH - _NAME_WIDTH - _FIGURE_WIDTH
    for row, (name, figure) in enumerate(bars):
        top = y + _HEAD - 8 + row * (_BAR + _GAP)
        weight = ' font-weight="600"' if name == OURS else ""
        length = max(1.0, room * figure / longest)
        base = top + _BAR - 3
        yield (
            f'<text x="{x + _NAME_WIDTH - 6}" y="{base}" text-anchor="end" fill="#343a40"{weight}>{escape(name)}</text>'
            f'<rect x="{x + _NAME_WIDTH}" y="{top}" width="{length:.1f}" height="{_BAR}" rx="2" '
            f'fill="{_COLOURS.get(name, _PEER)}"/>'
            f'<text x="{x + _NAME_WIDTH + length + 5:.1f}" y="{base}" fill="#495057"{weight}>'
            f"{number(figure, measure.digits)}</text>"
        )
