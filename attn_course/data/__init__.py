"""Generated tasks, vocabularies, batches, a tiny embedding table and two real data sets."""

from attn_course.data._fetch import DataError
from attn_course.data.batch import Batch, collate
from attn_course.data.dates import (
    DATE_SOURCE_VOCABULARY,
    DATE_TARGET_VOCABULARY,
    DatePair,
    date_normalisation,
    date_pairs,
    write_date,
)
from attn_course.data.digits import Digits, Scenes, digit_scenes, load_digits
from attn_course.data.embeddings import SENSE_EXAMPLES, SenseExample, WordVectors, word_vectors
from attn_course.data.multi30k import load_multi30k, words
from attn_course.data.shakespeare import load_shakespeare
from attn_course.data.streams import BatchStream, PairStream
from attn_course.data.tasks import copy, reversal, sort, symbol_vocabulary
from attn_course.data.toy_translation import (
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
    "DataError",
    "DatePair",
    "Digits",
    "PairStream",
    "Scenes",
    "SenseExample",
    "TranslationPair",
    "Vocabulary",
    "WordVectors",
    "collate",
    "copy",
    "date_normalisation",
    "date_pairs",
    "digit_scenes",
    "load_digits",
    "load_multi30k",
    "load_shakespeare",
    "reversal",
    "sort",
    "symbol_vocabulary",
    "translate",
    "translation",
    "translation_pairs",
    "word_vectors",
    "words",
    "write_date",
]
