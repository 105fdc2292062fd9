"""Generated tasks, vocabularies, batches, a tiny embedding table and two real data sets."""

from attn_course.data.batch import Batch, collate
from attn_course.data.dates import (
    DATE_SOURCE_VOCABULARY,
    DATE_TARGET_VOCABULARY,
    DatePair,
    date_normalisation,
    date_pairs,
    write_date,
)
from attn_course.data.embeddings import SENSE_EXAMPLES, SenseExample, WordVectors, word_vectors
from attn_course.data.streams import BatchStream, PairStream
from attn_course.data.tasks import copy, reversal, sort, symbol_vocabulary
from attn_course.data.translation import (
    TRANSLATION_SOURCE_VOCABULARY,
    TRANSLATION_TARGET_VOCABULARY,
    TranslationPair,
    translate,
    translation,
    translation_pairs,
)
from attn_course.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

__all__ = [
    "BOS",
    "DATE_SOURCE_VOCABULARY",
    "DATE_TARGET_VOCABULARY",
    "EOS",
    "PAD",
    "SENSE_EXAMPLES",
    "TRANSLATION_SOURCE_VOCABULARY",
    "TRANSLATION_TARGET_VOCABULARY",
    "UNK",
    "Batch",
    "BatchStream",
    "DatePair",
    "PairStream",
    "SenseExample",
    "TranslationPair",
    "Vocabulary",
    "WordVectors",
    "collate",
    "copy",
    "date_normalisation",
    "date_pairs",
    "reversal",
    "sort",
    "symbol_vocabulary",
    "translate",
    "translation",
    "translation_pairs",
    "word_vectors",
    "write_date",
]
