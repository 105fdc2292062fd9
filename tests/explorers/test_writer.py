"""The model in the page: its logits and weights are those of the package."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attn_course.data import load_language_model
from attn_course.explorers import _source, writer
from tests.explorers.conftest import Opened, find_node

TEXTS = ("ROMEO:\nBut soft, what light", "ROMEO:\nBut soft", "K", "KING RICHARD III:\n" * 9)
RUNNER = """
import { readFileSync } from "node:fs";
import { Llama } from "./llama_worker.mjs";
const file = readFileSync("shakespeare.safetensors");
const model = new Llama(file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength));
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(CALL)));
"""
CALL = """(text) => {
  const { logits, attention, computed } = model.read(text);
  const heads = attention.at(-1).map((head) => [...head]);
  return { logits: [...logits.at(-1)], attention: heads, computed };
}"""

IN_BROWSER = """async (texts) => {
  const worker = new Worker("/llama_worker.js", { type: "module" }), found = [];
  for (const text of texts) {
    const answer = new Promise((resolve) => { worker.onmessage = ({ data }) => resolve(data); });
    worker.postMessage({ address: "/shakespeare.safetensors", text, at: text.length - 1 });
    const { logits, attention } = await answer;
    found.push({ logits: [...logits], attention: attention.map((head) => [...head]) });
  }
  return found;
}"""

IN_BROWSER = """async (texts) => {
  const worker = new Worker("/llama_worker.js", { type: "module" }), found = [];
  for (const text of texts) {
    const answer = new Promise((resolve) => { worker.onmessage = ({ data }) => resolve(data); });
    worker.postMessage({ address: "/shakespeare.safetensors", text, at: text.length - 1 });
    const { logits, attention } = await answer;
    found.push({ logits: [...logits], attention: attention.map((head) => [...head]) });
  }
  return found;
}"""


def node(
    folder: Path, call: str, texts: Sequence[str], old: str = "", new: str = ""
) -> list[dict[str, Any]]:
    """What a JavaScript function of the worker's ``model`` gives for each text."""
    for name, content in _source.assets().items():
        (folder / name.replace(".js", ".mjs")).write_bytes(content)
    module = folder / "llama_worker.mjs"
    source = module.read_text(encoding="utf-8")
    assert old in source
    module.write_text(source.replace(old, new), encoding="utf-8")
    (folder / "run.mjs").write_text(RUNNER.replace("CALL", call), encoding="utf-8")
    done = subprocess.run(
        [find_node(), "run.mjs"], input=json.dumps(texts), cwd=folder,
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def worker(folder: Path, old: str = "", new: str = "") -> list[dict[str, Any]]:
    """What the worker finds for each text, one after the other with one cache."""
    return node(folder, CALL, TEXTS, old, new)


def largest_error(found: list[dict[str, Any]]) -> float:
    ours = [writer.read(text=text, at=-1) for text in TEXTS]
    return max(
        abs(a - b)
        for page, package in zip(found, ours, strict=True)
        for ours_, theirs in zip(
            [package["logits"], *package["attention"]], [page["logits"], *page["attention"]],
            strict=True,
        )
        for a, b in zip(ours_, theirs, strict=True)
    )  # fmt: skip


def test_the_worker_computes_what_the_package_computes(tmp_path: Path) -> None:
    found = worker(tmp_path)
    assert largest_error(found) < 1e-3
    # the second text is the beginning of the first: its columns are in the cache
    assert [each["computed"] for each in found] == [len(TEXTS[0]), 0, 1, len(TEXTS[3]) - 1]


@pytest.mark.browser
def test_the_worker_computes_the_same_in_a_browser(opened: Opened) -> None:
    page, _ = opened("writer")
    assert largest_error(page.evaluate(IN_BROWSER, list(TEXTS))) < 1e-3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Math.floor(head / group)", "head % this.num_kv_heads"),
        ("a * sine + b * cosine", "b * cosine - a * sine"),
        ("(1 + Math.exp(-value))", "(1 + Math.exp(-1.02 * value))"),
    ],
)
def test_a_fault_of_the_worker_is_seen(tmp_path: Path, old: str, new: str) -> None:
    assert largest_error(worker(tmp_path, old, new)) > 1e-3


def test_the_page_opens_with_what_the_model_says() -> None:
    model, characters = load_language_model()
    state = writer.default_state()
    assert len(state["result"]["logits"]) == len(characters)
    assert len(state["result"]["attention"]) == 6 * len(model.blocks)
    with pytest.raises(ValueError, match="257"):
        writer.read(text="a" * 257, at=-1)
