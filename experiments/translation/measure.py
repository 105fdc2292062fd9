"""What a trained model is asked: validation loss, BLEU, BLEU by length, where it looks."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor, nn

from attn_course.data import BOS, EOS, PAD, collate
from attn_course.train import beam_search, greedy_decode
from experiments.translation.corpus import Corpus, Split

# source length in words and punctuation marks: first and last of every bucket
BUCKETS = ((1, 8), (9, 11), (12, 14), (15, 17), (18, 1000))
BOOTSTRAP = 1000


def by_length(split: Split, batch_size: int) -> Iterator[list[int]]:
    """Row numbers, sentences of like length together, so that little is padding."""
    rows = sorted(range(len(split)), key=lambda row: (len(split.sources[row]), row))
    for start in range(0, len(rows), batch_size):
        yield rows[start : start + batch_size]


@torch.no_grad()
def loss_per_piece(
    model: nn.Module, split: Split, *, device: torch.device, batch_size: int = 100
) -> float:
    """Mean negative log-probability of a target piece, ``EOS`` included, in nats."""
    total, count = 0.0, 0
    for rows in by_length(split, batch_size):
        batch = collate(
            [split.sources[row] for row in rows], [split.targets[row] for row in rows]
        ).to(device)
        logits = model(batch.source, batch.source_lengths, batch.target_in)
        total += nn.functional.cross_entropy(
            logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD, reduction="sum"
        ).item()
        count += int((batch.target_out != PAD).sum())
    return total / count


@torch.no_grad()
def translate(
    model: Any,
    corpus: Corpus,
    *,
    device: torch.device,
    beam_size: int,
    length_penalty: float,
    max_length: int,
    batch_size: int = 50,
) -> list[str]:
    """The test sentences in English, in the order of the file.

    Args:
        model: Has ``init_state`` and ``step``.
        corpus: Its test part is translated.
        device: Where the model is.
        beam_size: 1 is greedy search.
        length_penalty: Exponent of the length normalisation of the beam search.
        max_length: Longest output, in pieces.
        batch_size: Sentences at a time.
    """
    said = [""] * len(corpus.test)
    for rows in by_length(corpus.test, batch_size):
        source, lengths = _sources(corpus.test, rows, device)
        state = model.init_state(source, lengths)
        if beam_size == 1:
            tokens = greedy_decode(
                model.step, state, bos=BOS, eos=EOS, max_length=max_length
            ).tokens
        else:
            tokens = beam_search(
                model.step,
                state,
                bos=BOS,
                eos=EOS,
                beam_size=beam_size,
                max_length=max_length,
                length_penalty=length_penalty,
            ).tokens[:, 0]
        for row, ids in zip(rows, tokens.tolist(), strict=True):
            said[row] = corpus.target_pieces.decode(ids)
    return said


def _sources(split: Split, rows: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
    batch = collate([split.sources[row] for row in rows], [split.targets[row] for row in rows])
    return batch.source.to(device), batch.source_lengths.to(device)


def bleu(said: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Corpus BLEU by sacrebleu on the untokenised text, with a bootstrap 95 % interval.

    The interval speaks of the choice of test sentences, not of the seed of the training.

    Returns:
        ``bleu``, ``interval`` (half its width), ``brevity_penalty`` and sacrebleu's ``signature``.
    """
    metric = BLEU()
    score = metric.corpus_score(list(said), [list(references)], n_bootstrap=BOOTSTRAP)
    return {
        "bleu": round(score.score, 2),
        "interval": round(float(score._ci), 2),
        "brevity_penalty": round(score.bp, 3),
        "signature": str(metric.get_signature()),
    }


def bleu_by_length(said: Sequence[str], split: Split) -> list[dict[str, Any]]:
    """BLEU of the sentences of each bucket of source lengths; empty buckets are left out."""
    buckets = []
    for first, last in BUCKETS:
        rows = [row for row, count in enumerate(split.source_words) if first <= count <= last]
        if rows:
            longest = max(split.source_words[row] for row in rows)
            score = BLEU().corpus_score(
                [said[row] for row in rows], [[split.references[row] for row in rows]]
            )
            buckets.append(
                {
                    "words": [first, min(last, longest)],
                    "sentences": len(rows),
                    "bleu": round(score.score, 2),
                }
            )
    return buckets


def chosen_rows(split: Split, number: int = 4, *, words: tuple[int, int] = (8, 13)) -> list[int]:
    """The first few test sentences of middling length: whose alignments are kept."""
    low, high = words
    fits = [row for row, count in enumerate(split.source_words) if low <= count <= high]
    return fits[:number]


@torch.no_grad()
def examples(
    model: Any, corpus: Corpus, rows: Sequence[int], *, device: torch.device, max_length: int
) -> list[dict[str, Any]]:
    """Greedy translations of a few test sentences with the weight of every source piece.

    Returns:
        For each: ``source`` and ``output`` pieces, ``reference``, ``said`` and ``weights``, one
        row per output piece; None for a model that does not look back.
    """
    kept = []
    for row in rows:
        source, lengths = _sources(corpus.test, [row], device)
        decoded = greedy_decode(
            model.step, model.init_state(source, lengths), bos=BOS, eos=EOS, max_length=max_length
        )
        ids = decoded.tokens[0, : int(decoded.lengths[0])].tolist()
        alignments = decoded.alignments
        if hasattr(model, "look_back"):  # a Transformer, all positions at once
            read = torch.tensor([[BOS, *ids[:-1]]], device=device)
            alignments = model.look_back(source, lengths, read)
        weights = None
        if alignments is not None:
            table = alignments[0, : len(ids), : int(lengths[0])]
            weights = [[round(value, 3) for value in line] for line in table.tolist()]
        kept.append(
            {
                "row": row,
                "source": corpus.source_pieces.names(corpus.test.sources[row]),
                "output": corpus.target_pieces.names(ids),
                "reference": corpus.test.references[row],
                "said": corpus.target_pieces.decode(ids),
                "weights": weights,
            }
        )
    return kept
