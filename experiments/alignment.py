"""Which source words a translator without a mistake looks at, and which of them it needs.

    python -m experiments.alignment

The toy translation, bidirectional GRU, additive score, GRU decoder, 200 steps. Links (largest
weight) against the known alignment, by kind of word; then the first article of 1,000 sentences with
one source position hidden from the look.
"""

from typing import Any

import torch
from torch import Generator, nn

from attn_course.data import BOS, EOS, Batch, BatchStream, translation
from attn_course.data.toy_translation import (
    ADJECTIVES,
    ARTICLES,
    NOUNS,
    TRANSLATION_SOURCE_VOCABULARY,
    TRANSLATION_TARGET_VOCABULARY,
    VERBS,
)
from attn_course.nn import AttentionEncoderDecoder, BahdanauDecoder, BidirectionalEncoder
from attn_course.train import (
    alignment_error_rate,
    fit,
    greedy_decode,
    teacher_forcing_loss,
    warmup_cosine,
)
from experiments.repeat import repeat

WORDS = {"articles": ARTICLES, "adjectives": ADJECTIVES, "nouns": NOUNS, "verbs": VERBS}


class FusedGRU(nn.GRUCell):
    """torch's own cell: the numbers of the package's, and faster."""

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)

    def initial_state(self, inputs: torch.Tensor) -> torch.Tensor:
        """Zeros for each row."""
        return inputs.new_zeros(inputs.shape[0], self.hidden_size)


def new_translator(seed: int) -> AttentionEncoderDecoder:
    """24 units for each network, an embedding of 16."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"embed_dim": 16, "hidden_size": 24, "cell": FusedGRU}
    return AttentionEncoderDecoder(
        encoder=BidirectionalEncoder(vocab_size=len(TRANSLATION_SOURCE_VOCABULARY), **sizes),
        decoder=BahdanauDecoder(
            vocab_size=len(TRANSLATION_TARGET_VOCABULARY),
            context_size=48,
            summary_size=24,
            **sizes,
        ),
    )


@torch.no_grad()
def look(model: AttentionEncoderDecoder, batch: Batch) -> torch.Tensor:
    """Weights (B, L, S), the right words given."""
    return model.align(batch.source, batch.source_lengths, batch.target_in)


def words_right(model: AttentionEncoderDecoder, batch: Batch) -> float:
    """Share of target words that greedy decoding writes in their place."""
    length = batch.target_out.shape[1]
    state = model.init_state(batch.source, batch.source_lengths)
    with torch.no_grad():
        found = greedy_decode(model.step, state, bos=BOS, eos=EOS, max_length=length).tokens
    found = nn.functional.pad(found, (0, length - found.shape[1]))
    return (found == batch.target_out)[batch.target_mask].double().mean().item()


def of_kind(batch: Batch) -> dict[str, torch.Tensor]:
    """For each kind of source word, the target positions (B, L) that come from one."""
    source = batch.source.gather(1, batch.alignment.clamp(min=0))
    return {
        kind: (batch.alignment >= 0)
        & torch.isin(source, torch.tensor(TRANSLATION_SOURCE_VOCABULARY.encode([*words])))
        for kind, words in WORDS.items()
    }


@torch.no_grad()
def first_article(model: AttentionEncoderDecoder, batch: Batch, hidden: torch.Tensor) -> float:
    """How often the first article is right; hidden: (B, S), the positions left out of the look."""
    state = model.init_state(batch.source, batch.source_lengths)
    memory = state.memory._replace(mask=state.memory.mask & ~hidden)
    logits, _ = model.step(batch.target_in[:, 0], state._replace(memory=memory))
    return (logits.argmax(-1) == batch.target_out[:, 0]).double().mean().item()


def hide(batch: Batch, place: torch.Tensor) -> torch.Tensor:
    """One position of each row."""
    return torch.zeros_like(batch.source_mask).scatter(1, place[:, None], True)


def measure(model: AttentionEncoderDecoder, batch: Batch) -> dict[str, Any]:
    """Error rates by kind of word, and what the first article loses when a position is hidden."""
    weights, links = look(model, batch), of_kind(batch)
    wrong = weights.argmax(-1) != batch.alignment
    noun = batch.alignment[:, 1]  # the word written after the first article
    places = {"the article": 0 * noun, "its noun": noun, "the verb": noun + 1}
    rows = torch.arange(len(noun))
    chosen = weights[:, 0].argmax(-1)
    to_noun = torch.where(links["articles"], batch.alignment.roll(-1, dims=1), batch.alignment)
    return {
        "words right": words_right(model, batch),
        "AER": alignment_error_rate(weights, batch.alignment),
        "AER, articles linked to their noun": alignment_error_rate(weights, to_noun),
        "linked elsewhere": {k: wrong[here].double().mean().item() for k, here in links.items()},
        "weight of": {k: weights[rows, 0, at].mean().item() for k, at in places.items()},
        "looked at": {k: (chosen == at).double().mean().item() for k, at in places.items()},
        "hidden": {"nothing": first_article(model, batch, torch.zeros_like(batch.source_mask))}
        | {k: first_article(model, batch, hide(batch, at)) for k, at in places.items()}
        | {
            "article and noun": first_article(
                model, batch, hide(batch, 0 * noun) | hide(batch, noun)
            )
        },
    }


def run(seed: int) -> dict[str, Any]:
    """Train one translator, and measure it and its controls on 1,000 sentences."""
    test = translation(1000, Generator().manual_seed(seed + 5))
    known, lengths = test.alignment >= 0, test.source_lengths[:, None]
    same_place = torch.arange(test.target_in.shape[1]).minimum(lengths - 1)
    untrained, model = new_translator(seed), new_translator(seed)
    fit(
        model,
        BatchStream(translation, batch_size=64, seed=seed),
        teacher_forcing_loss,
        optimizer=torch.optim.Adam(model.parameters()),
        steps=200,
        schedule=warmup_cosine(peak=1e-2, warmup=20, steps=200),
        clip_norm=1.0,
        progress=False,
    )
    return measure(model, test) | {
        "controls": {
            "untrained": alignment_error_rate(look(untrained, test), test.alignment),
            "word i from word i": (same_place != test.alignment)[known].double().mean().item(),
            "a place at random": 1 - (1 / lengths.expand_as(known)[known]).mean().item(),
        }
    }


if __name__ == "__main__":
    repeat(run, __file__)
