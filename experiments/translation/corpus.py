"""Sentence pairs as pieces: two sub-word models are trained on the training text, nothing else."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

import sentencepiece as spm

from attn_course.data import BOS, EOS, PAD, UNK, load_multi30k
from attn_course.data.multi30k import words

Pairs = Sequence[tuple[str, str]]


class Pieces:
    """A byte-pair-encoding model of SentencePiece with the course's four reserved ids.

    The same text and size give the same model. ``sentencepiece`` on one thread; NFKC; every
    character of the training text is kept.

    Args:
        texts: What it is trained on.
        vocab_size: Number of pieces, the reserved four included.
    """

    def __init__(self, texts: Sequence[str], *, vocab_size: int) -> None:
        model = io.BytesIO()
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            character_coverage=1.0,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            num_threads=1,
            minloglevel=2,
        )
        self.digest = hashlib.sha256(model.getvalue()).hexdigest()
        self._processor = spm.SentencePieceProcessor(model_proto=model.getvalue())

    def __len__(self) -> int:
        return int(self._processor.vocab_size())

    def encode(self, text: str) -> list[int]:
        """Ids of a sentence, without ``BOS`` and ``EOS``."""
        return list(self._processor.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """The sentence of the ids before the first ``EOS``."""
        ids = list(ids)
        return str(self._processor.decode(ids[: ids.index(EOS)] if EOS in ids else ids))

    def names(self, ids: Sequence[int]) -> list[str]:
        """The piece of every id; ``▁`` begins a word."""
        return [str(self._processor.id_to_piece(int(each))) for each in ids]


@dataclass(frozen=True, kw_only=True)
class Split:
    """One part of the corpus.

    Attributes:
        sources: Ids of every source sentence.
        targets: Ids of every target sentence.
        references: The target sentences as they stand in the file.
        source_words: Words and punctuation marks of every source sentence, whatever the pieces.
    """

    sources: list[list[int]]
    targets: list[list[int]]
    references: list[str]
    source_words: list[int]

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Training, validation and test pairs with their two sub-word models."""

    source_pieces: Pieces
    target_pieces: Pieces
    train: Split
    val: Split
    test: Split


def make_corpus(train: Pairs, val: Pairs, test: Pairs, *, vocab_size: int) -> Corpus:
    """Train the sub-word models on ``train`` and apply them to all three.

    Raises:
        ValueError: If a sentence has no pieces.
    """
    source = Pieces([pair[0] for pair in train], vocab_size=vocab_size)
    target = Pieces([pair[1] for pair in train], vocab_size=vocab_size)

    def split(name: str, pairs: Pairs) -> Split:
        made = Split(
            sources=[source.encode(pair[0]) for pair in pairs],
            targets=[target.encode(pair[1]) for pair in pairs],
            references=[pair[1] for pair in pairs],
            source_words=[len(words(pair[0])) for pair in pairs],
        )
        if not all(made.sources) or not all(made.targets):
            raise ValueError(f"{name}: expected no empty sentence, got one")
        return made

    return Corpus(
        source_pieces=source,
        target_pieces=target,
        train=split("train", train),
        val=split("val", val),
        test=split("test", test),
    )


def multi30k(*, vocab_size: int, train_pairs: int | None = None) -> Corpus:
    """German to English; all of validation and of the 2016 test set.

    Args:
        vocab_size: Pieces of each language.
        train_pairs: The first so many training pairs; all, if None.

    Raises:
        DataError: If a file can be neither found nor downloaded.
    """
    train, val, test = (
        load_multi30k(split, source="de", target="en")
        for split in ("train", "val", "test_2016_flickr")
    )
    return make_corpus(train[:train_pairs], val, test, vocab_size=vocab_size)
