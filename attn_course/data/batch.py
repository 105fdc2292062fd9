"""What every sequence-to-sequence model in the course is fed with."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attn_course.data.vocabulary import BOS, EOS, PAD


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Sequences of several lengths, padded at the end with ``PAD``.

    With the target sentence :math:`y_1 \\ldots y_n`, ``target_in`` is :math:`BOS, y_1 \\ldots y_n`
    and ``target_out`` is :math:`y_1 \\ldots y_n, EOS`: at every position the decoder reads the one
    and is asked for the other. The source carries neither ``BOS`` nor ``EOS``.

    Attributes:
        source: Token ids of the source, ``S`` is the longest source of the batch.
        source_lengths: How many ids of each source row count.
        target_in: What the decoder reads, ``L`` is the longest target plus one.
        target_out: What the decoder should say; ``PAD`` marks positions that do not count.
        alignment: Where it is known by construction: for each target position the source position
            that it comes from, -1 where there is none (hyphens, ``EOS``, padding).
    """

    source: Int[Tensor, "B S"]
    source_lengths: Int[Tensor, " B"]
    target_in: Int[Tensor, "B L"]
    target_out: Int[Tensor, "B L"]
    alignment: Int[Tensor, "B L"] | None = None

    def __len__(self) -> int:
        return self.source.shape[0]

    @property
    def target_lengths(self) -> Int[Tensor, " B"]:
        """Positions of each target row that count, ``EOS`` included."""
        return (self.target_out != PAD).sum(dim=1)

    @property
    def source_mask(self) -> Bool[Tensor, "B S"]:
        """True at source positions that count."""
        places = torch.arange(self.source.shape[1], device=self.source.device)
        return places < self.source_lengths[:, None]  # (B, S)

    @property
    def target_mask(self) -> Bool[Tensor, "B L"]:
        """True at target positions that count, ``EOS`` included."""
        return self.target_out != PAD

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(
            source=self.source.to(device),
            source_lengths=self.source_lengths.to(device),
            target_in=self.target_in.to(device),
            target_out=self.target_out.to(device),
            alignment=None if self.alignment is None else self.alignment.to(device),
        )


def collate(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    alignments: Sequence[Sequence[int]] | None = None,
) -> Batch:
    """Pad pairs of id lists into a batch, and shift the targets by one.

    Args:
        sources: One list of ids per row.
        targets: As many lists of ids, without ``BOS`` and ``EOS``.
        alignments: For each target id the source position it comes from, -1 for none.

    Raises:
        ValueError: If there is no row, the numbers of rows differ, a source is empty, or an
            alignment differs in length from its target or points outside its source.
    """
    if not sources or len(sources) != len(targets):
        raise ValueError(
            f"targets: expected one per source and at least one, "
            f"got {len(targets)} targets for {len(sources)} sources"
        )
    if any(len(source) == 0 for source in sources):
        raise ValueError("sources: expected at least one id in every row, got an empty row")
    aligned = None
    if alignments is not None:
        _check_alignments(sources, targets, alignments)
        aligned = _pad([[*row, -1] for row in alignments], -1)
    return Batch(
        source=_pad(sources, PAD),
        source_lengths=torch.tensor([len(source) for source in sources]),
        target_in=_pad([[BOS, *target] for target in targets], PAD),
        target_out=_pad([[*target, EOS] for target in targets], PAD),
        alignment=aligned,
    )


def _pad(rows: Sequence[Sequence[int]], fill: int) -> Int[Tensor, "B L"]:
    padded = torch.full((len(rows), max(map(len, rows))), fill, dtype=torch.long)
    for row, ids in enumerate(rows):
        padded[row, : len(ids)] = torch.as_tensor(ids, dtype=torch.long)
    return padded


def _check_alignments(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    alignments: Sequence[Sequence[int]],
) -> None:
    if len(alignments) != len(targets):
        raise ValueError(f"alignments: expected {len(targets)} rows, got {len(alignments)}")
    for source, target, alignment in zip(sources, targets, alignments, strict=True):
        if len(alignment) != len(target):
            raise ValueError(
                f"alignments: expected {len(target)} places, one per target id, "
                f"got {len(alignment)}"
            )
        if any(not -1 <= place < len(source) for place in alignment):
            raise ValueError(
                f"alignments: expected places from -1 to {len(source) - 1}, got {list(alignment)}"
            )
