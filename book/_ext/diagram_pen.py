"""The pen of the course's diagrams: boxes, signs, words and arrows in, one SVG element out.

A :class:`Drawing` is a list of shapes with names, and each shape belongs to parts ("encoder",
"scores", ...). :meth:`Drawing.svg` lights some parts and dims the rest. Places are given once, in
units of which 350 fit beside each other: on a phone a unit is a pixel, so no label is smaller than
11 px there. Nothing needs a style sheet: every colour is ``currentColor`` or a variable of the book
with a fallback.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH = 350
SYMBOL, INDEX, WORDS = 17, 12, 13
LIT = "var(--attn-ink, currentColor)"
#: The colours of query, key, value and weight on a light page; ``interactive.css`` has the others.
COLOURS = {"query": "#7a1068", "key": "#0a5530", "value": "#9b5310", "weight": "#0b62a0"}
#: What is drawn in the colour of a role: parts, words and letters of this name.
ROLES = {"query": "query", "keys": "key", "values": "value", "weights": "weight"} | dict(
    zip("qQkKvV", ("query", "query", "key", "key", "value", "value"), strict=True),
    **{"\\alpha": "weight"},
)
ITALIC = (
    "font-family=\"KaTeX_Math, 'STIX Two Math', 'Times New Roman', serif\" font-style=\"italic\""
)
UPRIGHT = "font-family=\"KaTeX_Main, 'STIX Two Math', 'Times New Roman', serif\""
ACCENTS = {"bar": "\u0304", "tilde": "\u0303", "hat": "\u0302"}
ARROWS = {"right": "→", "left": "←"}
GREEK = {
    "alpha": "α",
    "sigma": "σ",
    "Sigma": "Σ",
    "beta": "β",
    "times": "×",
    "ell": "ℓ",
    "dots": "…",
    "cdot": "·",
}
Point = tuple[float, float]


@dataclass(frozen=True)
class Shape:
    """A piece of SVG, what it is part of, and its box: centre and half sizes."""

    svg: str
    parts: frozenset[str]
    x: float = 0
    y: float = 0
    half_w: float = 0
    half_h: float = 0
    role: str = ""


def role_of(label: str, part: str) -> str:
    """Query, key, value or weight, by the label of a shape or else by its parts; or none."""
    letter = re.sub(r"_.*", "", label.rstrip(","))
    if letter in ROLES and "," not in label[:-1]:
        return ROLES[letter]
    roles = {ROLES[one] for one in part.split() if one in ROLES}
    return roles.pop() if len(roles) == 1 else ""


def formula(label: str) -> str:
    r"""The inside of a ``<text>``: letters slanted, ``_{..}`` low and ``^{..}`` high, as in TeX."""
    out, place, shift = [], 0, 0.0
    tokens = re.findall(
        r"[_^](?:\{[^}]*\}|.)|\\(?:bar|tilde|hat|right|left) ?[A-Za-z]|\\[a-zA-Z]+|.", label
    )
    for token in tokens:
        low = {"_": 5.0, "^": -7.0}.get(token[0], 0.0)
        accent = re.fullmatch(r"\\(bar|tilde|hat|right|left) ?([A-Za-z])", token)
        size = SYMBOL
        if low:
            text, size = token[1:].strip("{}"), INDEX
            text = re.sub(r"\\([a-zA-Z]+) ?", lambda found: GREEK[found[1]], text)
        elif accent and accent[1] in ACCENTS:
            text = accent[2] + ACCENTS[accent[1]]
        elif accent:
            text = accent[2]  # its arrow is drawn above it by _text
        else:
            text = GREEK[token[1:]] if token.startswith("\\") else token
        move = low - shift
        shift, place = low, place + 1
        slanted = re.fullmatch(r"[A-Za-zα-ωΑ-Ω\u0300-\u0304−+\-0-9,…]*", text) is not None
        face = (
            ITALIC if slanted and not re.fullmatch(r"[0-9()\[\];=+…, ]+|Σ|×|·", text) else UPRIGHT
        )
        dy = f' dy="{move:g}"' if move else ""
        out.append(f'<tspan {face} font-size="{size}"{dy}>{escape(text.replace("-", "−"))}</tspan>')
    return "".join(out)


@dataclass
class Drawing:
    """One diagram: shapes by name, and what its parts are called.

    Attributes:
        name: What pages call it.
        height: Of the drawing, in units.
        alt: What it shows when nothing is lit, in a sentence or two.
        parts: The parts that can be lit: key, and how the description names it.
    """

    name: str
    height: float
    alt: str
    parts: dict[str, str]
    shapes: dict[str, Shape] = field(default_factory=dict)
    order: list[Shape] = field(default_factory=list)

    def _add(self, key: str | None, shape: Shape) -> None:
        if unknown := shape.parts - set(self.parts):
            raise ValueError(f"{self.name}: no part {', '.join(sorted(unknown))}")
        if key is not None:
            if key in self.shapes:
                raise ValueError(f"{self.name}: the name {key!r} stands twice")
            self.shapes[key] = shape
        self.order.append(shape)

    def box(
        self,
        key: str,
        label: str,
        at: Point,
        part: str,
        *,
        size: Point = (46, 30),
        words: bool = False,
        dashed: bool = False,
        role: str | None = None,
    ) -> None:
        """A box with a symbol (or, with ``words``, with plain words) in it."""
        role = role_of(label, part) if role is None else role
        (x, y), (w, h) = at, size
        line = ' stroke-dasharray="4 3"' if dashed else ""
        svg = (
            f'<rect x="{x - w / 2:g}" y="{y - h / 2:g}" width="{w:g}" height="{h:g}" rx="4" '
            f'fill="currentColor" fill-opacity="{{fill}}" stroke="currentColor"{line}/>'
        )
        lines = label.split("|")
        for i, text in enumerate(lines):
            middle = y + 17 * (i - (len(lines) - 1) / 2)
            svg += self._text(text, x, middle + (4.5 if words else 5), "middle", words)
        self._add(key, Shape(svg, frozenset(part.split()), x, y, w / 2, h / 2, role))

    def sign(self, key: str, label: str, at: Point, part: str, *, radius: float = 11) -> None:
        """A small circle with a sign: a sum, a product, a choice."""
        x, y = at
        svg = (
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="currentColor" '
            'fill-opacity="{fill}" stroke="currentColor"/>'
        )
        svg += self._text(label, x, y + 5, "middle", False)
        self._add(key, Shape(svg, frozenset(part.split()), x, y, radius, radius))

    def bar(self, key: str, at: Point, share: float, part: str, *, size: Point = (16, 30)) -> None:
        """A column that is filled to a share of its height: a weight."""
        (x, y), (w, h) = at, size
        svg = (
            f'<rect x="{x - w / 2:g}" y="{y - h / 2:g}" width="{w:g}" height="{h:g}" '
            'fill="none" stroke="currentColor" stroke-width="1"/>'
            f'<rect x="{x - w / 2:g}" y="{y + h / 2 - h * share:g}" width="{w:g}" '
            f'height="{h * share:g}" fill="currentColor" stroke="none" fill-opacity=".7"/>'
        )
        self._add(key, Shape(svg, frozenset(part.split()), x, y, w / 2, h / 2, "weight"))

    def grid(
        self, corner: Point, cell: float, shares: Sequence[Sequence[float]], part: str
    ) -> None:
        """A table of square cells from its upper left corner, each as full as its share of 1."""
        (left, top), width, height = corner, len(shares[0]) * cell, len(shares) * cell
        cuts = [f"M{left + i * cell:g} {top:g}v{height:g}" for i in range(len(shares[0]) + 1)]
        cuts += [f"M{left:g} {top + i * cell:g}h{width:g}" for i in range(len(shares) + 1)]
        svg = f'<path d="{"".join(cuts)}" fill="none" stroke="currentColor" stroke-width=".7"/>'
        for share in sorted({one for row in shares for one in row if one}):
            full = "".join(
                f"M{left + j * cell:g} {top + i * cell:g}h{cell:g}v{cell:g}h-{cell:g}z"
                for i, row in enumerate(shares)
                for j, one in enumerate(row)
                if one == share
            )
            svg += f'<path d="{full}" fill="currentColor" stroke="none" fill-opacity="{share:g}"/>'
        self._add(None, Shape(svg, frozenset(part.split()), role="weight"))

    def _text(self, label: str, x: float, y: float, anchor: str, words: bool) -> str:
        inner = escape(label) if words else formula(label)
        size = f' font-size="{WORDS}"' if words else ""
        over = "" if words else "".join(ARROWS[k] for k in ARROWS if label.startswith(f"\\{k} "))
        above = (
            f'<text x="{x:g}" y="{y - 10:g}" text-anchor="{anchor}" font-size="11" '
            f'fill="currentColor" stroke="none" aria-hidden="true">{over}</text>'
        )
        return (above if over else "") + (
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{size} fill="currentColor" '
            f'stroke="none">{inner}</text>'
        )

    def say(
        self, text: str, at: Point, part: str = "", *, anchor: str = "middle", words: bool = True
    ) -> None:
        """Words beside the boxes (or, with ``words=False``, a formula)."""
        svg = self._text(text, at[0], at[1], anchor, words)
        self._add(None, Shape(svg, frozenset(part.split()), role=role_of(text, part)))

    def band(self, at: Point, size: Point, part: str, *, filled: bool = True) -> None:
        """A region behind what is drawn after it."""
        (x, y), (w, h) = at, size
        fill = "{fill}" if filled else "0"
        svg = (
            f'<rect x="{x - w / 2:g}" y="{y - h / 2:g}" width="{w:g}" height="{h:g}" rx="6" '
            f'fill="currentColor" fill-opacity="{fill}" stroke="currentColor" '
            'stroke-width="1" stroke-dasharray="4 3"/>'
        )
        self._add(None, Shape(svg, frozenset(part.split())))

    def curve(self, points: Iterable[Point], part: str, *, dashed: bool = False) -> None:
        """A line through points."""
        d = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        line = ' stroke-dasharray="4 3"' if dashed else ""
        svg = f'<path d="M{d}" fill="none" stroke="currentColor"{line}/>'
        self._add(None, Shape(svg, frozenset(part.split()), role=role_of("", part)))

    def arrow(
        self,
        start: str | Point,
        end: str | Point,
        part: str,
        *,
        via: Sequence[Point] = (),
        dashed: bool = False,
        role: str | None = None,
    ) -> None:
        """From edge to edge of two named shapes, over the points of ``via``."""
        first = via[0] if via else self._middle(end)
        last = via[-1] if via else self._middle(start)
        points = [self._edge(start, first), *via, self._edge(end, last)]
        (x0, y0), (x1, y1) = points[-2:]
        length = math.hypot(x1 - x0, y1 - y0) or 1
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        stop = (x1 - 5 * ux, y1 - 5 * uy)
        d = "L".join(f"{x:.1f} {y:.1f}" for x, y in [*points[:-1], stop])
        wing = [(x1 - 8 * ux - 3.6 * uy, y1 - 8 * uy + 3.6 * ux), (x1, y1)]
        wing.append((x1 - 8 * ux + 3.6 * uy, y1 - 8 * uy - 3.6 * ux))
        head = "L".join(f"{x:.1f} {y:.1f}" for x, y in wing)
        line = ' stroke-dasharray="4 3"' if dashed else ""
        svg = (
            f'<path d="M{d}" fill="none" stroke="currentColor" stroke-linejoin="round"{line}/>'
            f'<path d="M{head}Z" fill="currentColor" stroke="none"/>'
        )
        role = role_of("", part) if role is None else role
        self._add(None, Shape(svg, frozenset(part.split()), role=role))

    def _middle(self, place: str | Point) -> Point:
        if isinstance(place, str):
            shape = self.shapes[place]
            return shape.x, shape.y
        return place

    def _edge(self, place: str | Point, towards: Point) -> Point:
        """Where the line from the middle of a shape to a point leaves it; 2 units of air."""
        if not isinstance(place, str):
            return place
        shape = self.shapes[place]
        dx, dy = towards[0] - shape.x, towards[1] - shape.y
        w, h = shape.half_w + 2, shape.half_h + 2
        # an aim that is level or upright leaves straight, from where it aims
        if abs(dx) <= shape.half_w and abs(dy) > h:
            return shape.x + dx, shape.y + math.copysign(h, dy)
        if abs(dy) <= shape.half_h and abs(dx) > w:
            return shape.x + math.copysign(w, dx), shape.y + dy
        scale = min(w / abs(dx) if dx else math.inf, h / abs(dy) if dy else math.inf)
        return shape.x + dx * scale, shape.y + dy * scale

    def describe(self, lit: Sequence[str]) -> str:
        """Alternative text: what the diagram shows, and what is lit in it."""
        if not lit:
            return self.alt
        return f"{self.alt} Highlighted: {', '.join(self.parts[part] for part in lit)}."

    def svg(self, lit: Sequence[str] = (), *, alt: str = "", caption: str = "") -> str:
        """The drawing as an ``<svg>`` element.

        Args:
            lit: Parts to light; none leaves everything as it is.
            alt: Alternative text in place of the computed one.
            caption: What the page prints below it.

        Raises:
            ValueError: If there is no such part.
        """
        for part in lit:
            if part not in self.parts:
                raise ValueError(
                    f"no part {part!r} in {self.name} (there are: {', '.join(self.parts)})"
                )
        body = []
        for shape in self.order:
            on = bool(shape.parts & set(lit))
            hue = f"var(--attn-{shape.role}, {COLOURS[shape.role]})" if shape.role else ""
            if not lit or (not shape.parts and not on):
                group, fill = 'stroke-width="1.2"', "0.04"
                if lit:
                    group += ' opacity=".55"'
            elif on:
                group, fill, hue = 'class="attn-lit" stroke-width="2"', "0.14", hue or LIT
            else:
                group, fill = 'class="attn-dim" stroke-width="1.2" opacity=".5"', "0"
            group += f' style="color: {hue}"' if hue else ""
            body.append(f"<g {group}>{shape.svg.replace('{fill}', fill)}</g>")
        label = escape(alt or self.describe(lit), quote=True)
        said = f' data-caption="{escape(caption, quote=True)}"' if caption else ""
        return (
            f'<svg class="attn-figure attn-diagram" role="img" aria-label="{label}"{said} '
            f'data-diagram="{self.name}" xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {WIDTH} {self.height:g}" width="{WIDTH * 1.25:g}" '
            f'height="{self.height * 1.25:g}" font-family="sans-serif">{"".join(body)}</svg>'
        )
