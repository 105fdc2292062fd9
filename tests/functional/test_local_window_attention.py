"""Windows that are scored alone, against NumPy and against scores of all places."""

import pytest
import torch
from oracles import by_numpy
from torch.testing import assert_close

from attn_course.functional import local_window_attention
from attn_course.nn import LocalM, LocalP, LuongDecoder
from attn_course.nn.attention import AttentionMemory
from attn_course.nn.scores import GeneralScore


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("half_width", [1, 2.5, 30])
def test_weights_and_output_are_those_of_numpy(gaussian: bool, half_width: float) -> None:
    query, key = torch.randn(3, 5, 4).double(), torch.randn(3, 11, 4).double()
    value = torch.randn(3, 11, 2).double()
    position, lengths = 11 * torch.rand(3, 5).double(), torch.tensor([11, 4, 1])
    output, weights, places = local_window_attention(
        query, key, value, position, half_width, lengths, gaussian=gaussian
    )
    wanted, everywhere = by_numpy.local_window_attention(
        query, key, value, position, half_width, lengths, gaussian=gaussian
    )
    assert_close(output, wanted)
    assert_close(weights, everywhere.gather(-1, places))
    assert_close(weights.sum(-1), everywhere.sum(-1))


@pytest.mark.parametrize("kind", ["local-m", "local-p"])
def test_a_decoder_that_scores_the_window_only_is_the_same_decoder(kind: str) -> None:
    window = LocalM(half_width=2) if kind == "local-m" else LocalP(half_width=2, query_size=6)
    score = GeneralScore(query_size=6, key_size=6)
    decoder = LuongDecoder(
        vocab_size=11, embed_dim=4, context_size=6, summary_size=6, hidden_size=6,
        score=score, window=window,
    ).double()  # fmt: skip
    mask = torch.arange(23) < torch.tensor([23, 5, 14])[:, None]
    keys = torch.randn(3, 23, 6, dtype=torch.float64)
    memory = AttentionMemory(score.prepare(keys), keys * mask.unsqueeze(-1), mask)
    hidden = torch.randn(3, 7, 6, dtype=torch.float64)
    steps = torch.arange(7).expand(3, -1)
    got, weights = window.attend(score.compare, hidden, steps, memory)
    wanted, everywhere = decoder.attention.attend(
        hidden, memory, weigh=lambda scores, _: window(scores, hidden, steps, mask)
    )
    assert_close(got, wanted)
    assert_close(weights, everywhere)
