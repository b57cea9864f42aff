"""Names in figures: the choice of clients that are named, and places for the names where none covers another.

The places are computed anew for every drawing, from the size the axes have then: a figure may be resized, or saved at another
resolution, after it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.artist import Artist
from matplotlib.lines import Line2D
from matplotlib.transforms import IdentityTransform

from ..embedding.names import listed
from ..errors import InputError
from ..model.geometry import Array

__all__ = ["Labels", "NameLabels", "chosen", "shortened", "verbatim"]

#: Names to write: all that fit, none, the given number of the most important ones, or those of the given clients.
Labels: TypeAlias = "bool | int | str | Iterable[Any]"

#: With more clients than this only the :data:`MOST` most important ones are named unless more are asked for.
CROWD, MOST = 30, 12
#: Directions in which a name is looked for around its marker; the right is tried first.
DIRECTIONS = np.deg2rad([0, 180, 90, 270, 45, 315, 135, 225, 22, 338, 158, 202, 67, 113, 247, 293])
#: Distances from the marker at which a name is connected to it by a line, in heights of the name; where all clients are named,
#: only the first :data:`NEAR` unless a name has to be shown.
AWAY, NEAR = (1.2, 2.4, 4.0, 6.0, 9.0, 13.0), 2


def chosen(labels: Labels, names: Sequence[str], importance: Array) -> tuple[list[int], bool]:
    """Return the places of the clients to name, most important first, and True if each of them has to be named.

    Raises
    ------
    InputError
        If ``labels`` is a negative number or names no client.
    """
    order = [int(k) for k in np.argsort(-importance, kind="stable")]
    if isinstance(labels, (bool, np.bool_)):
        return (order[: MOST if len(names) > CROWD else len(names)] if labels else []), False
    if isinstance(labels, (int, np.integer)):
        if labels < 0:
            raise InputError("labels", "must be True, False, a number or names of clients", value=labels)
        return order[: int(labels)], False
    wanted = [labels] if isinstance(labels, str) else [str(name) for name in labels]
    for name in wanted:
        if name not in names:
            raise InputError(
                "labels", f"there is no such client; the clients are {listed(names)}", value=repr(name)
            )
    return [k for k in order if names[k] in set(wanted)], True


def shortened(names: Sequence[str], most: int) -> list[str]:
    """Return the names with the middle of long ones left out; a name that would no longer differ from another stays whole.

    >>> shortened(["York", "Royal Infirmary of Kingston upon Hull"], 16)
    ['York', 'Royal In…on Hull']
    """
    short = [
        name if len(name) <= most else name[: most // 2] + "…" + name[len(name) + 1 - most // 2 :]
        for name in names
    ]
    times = {name: short.count(name) for name in set(short)} if len(short) > len(set(short)) else {}
    return [name if times.get(brief, 1) > 1 else brief for name, brief in zip(names, short, strict=True)]


def verbatim(name: str) -> str:
    """Return a name as matplotlib has to get it to show it unchanged: between dollar signs it would read mathematics."""
    return name.replace("$", r"\$")


class NameLabels(Artist):
    """Names next to markers, and triangles at the edge of the axes for markers that lie beyond it.

    A name without a free place is left out unless it has to be shown. The name of a marker beyond the axes is always shown.

    Parameters
    ----------
    ax
        The axes that hold the markers.
    words
        One text per name, most important first.
    places
        Coordinates of the marker of each name, in data units.
    radii
        Radius of the marker of each name, in points.
    far
        True for the markers that may lie beyond the axes and get a triangle there.
    markers, marker_radii
        Places and radii of all markers, which no name may cover.
    forced
        True for the names that have to be shown; one without a free place covers as little as possible.
    edge
        Colour of the triangles.
    style
        Options of ``ax.annotate``.
    """

    def __init__(
        self,
        ax: Any,
        words: Sequence[str],
        places: Array,
        radii: Array,
        far: Sequence[bool],
        *,
        markers: Array,
        marker_radii: Array,
        forced: bool,
        edge: str,
        **style: Any,
    ) -> None:
        super().__init__()
        self.set_zorder(2.9)  # before the texts and triangles that it places
        self.set_in_layout(False)
        self._places, self._radii, self._forced = places, radii, forced
        self._markers, self._marker_radii = markers, marker_radii
        self._texts = [
            ax.annotate(
                verbatim(word), tuple(place), (0, 0), textcoords="offset points", ha="left", va="bottom",
                annotation_clip=False, in_layout=False, **style,
            )
            for word, place in zip(words, places, strict=True)
        ]  # fmt: skip
        # in pixels; the places are known when the axes are drawn, and the legend keeps away from them
        look: dict[str, Any] = {"color": edge, "ls": "none", "ms": 8, "zorder": 3.5, "in_layout": False}
        self._triangles = [
            ax.add_line(Line2D([], [], transform=IdentityTransform(), **look)) if beyond else None
            for beyond in far
        ]
        ax.add_artist(self)

    def draw(self, renderer: Any) -> None:
        """Find a place for every name and connect those that stand apart from their markers."""
        ax: Any = self.axes
        frame, point = ax.bbox, ax.figure.dpi / 72.0
        for text in self._texts:
            text.set_visible(False)
        centres = ax.transData.transform(self._places)
        radii = self._radii * point
        rim = frame.padded(-6.0 * point)
        beyond = np.zeros(len(centres), dtype=bool)
        for k, triangle in enumerate(self._triangles):
            if triangle is None:
                continue
            beyond[k] = not frame.contains(*centres[k])
            triangle.set_visible(bool(beyond[k]))
            if beyond[k]:
                over = centres[k] - np.clip(centres[k], frame.min, frame.max)
                triangle.set_marker("<^>v"[int(np.argmax([-over[0], over[1], over[0], -over[1]]))])
                centres[k] = np.clip(centres[k], rim.min, rim.max)
                radii[k] = 5.0 * point
                triangle.set_data(*centres[k][:, None])
        around, reach = ax.transData.transform(self._markers), (self._marker_radii * point)[:, None]
        around, reach = np.vstack([around, centres[beyond]]), np.vstack([reach, radii[beyond, None]])
        taken = np.hstack([around - reach, around + reach])
        legend = ax.get_legend()
        if legend is not None and legend.get_visible():
            taken = np.vstack([taken, legend.get_window_extent(renderer).extents])
        # names that are always shown choose their places first
        for k in sorted(range(len(centres)), key=lambda k: not beyond[k]):
            text, centre = self._texts[k], centres[k]
            if not frame.padded(1.0).contains(*centre):
                continue
            text.set_visible(True)
            extent = text.get_window_extent(renderer)
            size = np.array([extent.width, extent.height])
            forced = self._forced or bool(beyond[k])
            away = AWAY if forced or len(self._texts) <= MOST + 1 else AWAY[:NEAR]
            corner, line = _place(centre, float(radii[k]), size, taken, frame, 2.0 * point, away, forced)
            if corner is None:
                text.set_visible(False)
                continue
            text.set_position(tuple((corner - ax.transData.transform(self._places[k])) / point))
            taken = np.vstack([taken, [*corner, *(corner + size)]])
            if line is not None:
                leader = Line2D(*line.T, color=text.get_color(), lw=0.6, alpha=0.6, transform=None)
                leader.set_figure(ax.figure)
                leader.draw(renderer)


def _place(
    centre: Array,
    radius: float,
    size: Array,
    taken: Array,
    frame: Any,
    gap: float,
    away: Sequence[float],
    forced: bool,
) -> tuple[Array | None, Array | None]:
    """Return the lower left corner of a free place for a name of the given size, and the line to its marker if it is far off."""
    ways = np.stack([np.cos(DIRECTIONS), np.sin(DIRECTIONS)], axis=1)
    steps = [0.0, *(height * size[1] for height in away)]
    distances = np.repeat(radius + gap + np.array(steps), len(ways))
    ways = np.tile(ways, (len(steps), 1))
    # the name touches the circle of that distance with the point of its outline that faces the marker
    corners = centre + distances[:, None] * ways - 0.5 * size * (1.0 - np.clip(1.5 * ways, -1.0, 1.0))
    inside = (
        (corners[:, 0] >= frame.x0 + 1)
        & (corners[:, 1] >= frame.y0 + 1)
        & (corners[:, 0] + size[0] <= frame.x1 - 1)
        & (corners[:, 1] + size[1] <= frame.y1 - 1)
    )
    low, high = corners[:, None], corners[:, None] + size
    common = np.minimum(high, taken[None, :, 2:]) - np.maximum(low, taken[None, :, :2])
    covered = np.prod(np.maximum(common, 0.0), axis=2).sum(axis=1)
    free = np.flatnonzero(inside & (covered == 0.0))
    if len(free):
        best = int(free[0])
    elif forced:
        best = int(np.argmin(np.where(inside, covered, np.inf)))
        corners[best] = np.clip(
            corners[best], [frame.x0 + 1, frame.y0 + 1], [frame.x1 - 1 - size[0], frame.y1 - 1 - size[1]]
        )
    else:
        return None, None
    corner: Array = corners[best]
    if best < len(DIRECTIONS):
        return corner, None
    end = np.clip(centre, corner, corner + size)
    across = end - centre
    start = centre + across * min(1.0, radius / (float(np.hypot(*across)) or 1.0))
    return corner, np.stack([start, end])
