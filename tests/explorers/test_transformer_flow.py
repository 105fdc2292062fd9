"""The explorer's numbers are the shipped model's, and its lines need the heads that it names."""

import pytest
import torch

from attn_course.data import load_language_model
from attn_course.explorers.transformer_flow import LINES, compute, losses, read
from attn_course.nn import patched, without_heads
from tests.explorers.test_writer import node


@pytest.mark.parametrize(("text", "head"), LINES)
def test_a_line_needs_its_head(text: str, head: int) -> None:
    found = read(text=text, off=[head])
    whole, without = compute(before=found["before"], after=found["after"])["steps"][-1][1:]
    assert whole > 0.95
    assert without < 0.6
    model, characters = load_language_model()
    ids = characters.encode(text)[None]
    name = f"blocks.{head // 6}.attention.heads"
    with torch.no_grad(), patched(model, name, without_heads(head % 6)):
        expected = model(ids)[0, -1]
    torch.testing.assert_close(torch.tensor(found["after"][-1]), expected, atol=6e-4, rtol=0)
    lost = losses(text)
    assert lost.index(max(lost)) == head
    assert lost[head] == pytest.approx(whole - without, abs=2e-3)


def test_weights_sum_to_one() -> None:
    weights = torch.tensor(read(text="O Romeo, Rom", off=[])["attention"])
    assert weights.shape == (36, 12)
    torch.testing.assert_close(weights.sum(-1), torch.ones(36), atol=6e-3, rtol=0)


@pytest.mark.parametrize(("change", "message"), [
    ({"text": ""}, "text: expected 1 to 40"), ({"text": "a" * 41}, "text: expected 1 to 40"),
    ({"off": [36]}, "off: expected heads 0 to 35"),
])  # fmt: skip
def test_bad_lines_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(**{"text": "a", "off": []} | change)
    with pytest.raises(ValueError, match="after: expected shape"):
        compute(before=[[0.0, 1.0]], after=[[0.0]])


CALL = """(text) => {
  const { logits, attention } = model.without(text, [29]);
  const { logits: all } = model.without(text, []);
  return { logits: [...logits, ...all].flat(), attention };
}"""


def test_the_worker_switches_the_heads_off_that_the_package_switches_off(tmp_path) -> None:
    text = LINES[0][0]
    [found], ours = node(tmp_path, CALL, [text]), read(text=text, off=[29])
    expected = torch.tensor([*ours["after"], *ours["before"]])
    torch.testing.assert_close(
        torch.tensor(found["logits"]).view_as(expected), expected, atol=2e-3, rtol=0
    )
    expected = torch.tensor(ours["attention"])
    # the layers below the head do not know of it
    torch.testing.assert_close(
        torch.tensor(found["attention"])[:30], expected[:30], atol=2e-3, rtol=0
    )
    [fault] = node(tmp_path, CALL.replace("[29]", "[28]"), [text])
    assert (torch.tensor(fault["logits"]) - torch.tensor(found["logits"])).abs().max() > 0.1
