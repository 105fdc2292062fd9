"""The original file format of the bAbI tasks (Weston et al., 2015)."""

from collections.abc import Iterator
from pathlib import Path

from attn_course.data.stories import Sentence, Story


def read_babi(path: Path | str) -> list[Story]:
    r"""Read stories and questions from a file such as ``qa1_single-supporting-fact_train.txt``.

    Every line starts with a number that counts from 1 and starts again with each story. A question
    carries its answer and the numbers of its supporting lines behind tabs::

        1 Mary moved to the bathroom.
        2 John went to the hallway.
        3 Where is Mary? <tab>bathroom<tab>1

    Every question makes one :class:`~attn_course.data.stories.Story`: the sentences before it,
    without earlier questions. An answer of several words (``apple,milk``) stays one word, as in the
    paper.

    Args:
        path: The file, UTF-8.

    Returns:
        One story per question, in the order of the file; supporting line numbers have become places
        in ``sentences``.

    Raises:
        ValueError: If a line is malformed, with file and line: no number, a number that does not
            count on, no text, a question without an answer or with more than three fields, or a
            supporting number that is no earlier sentence; also if the file is not UTF-8 or holds no
            question.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}:{line}: expected UTF-8, got byte {error.start}") from error
    stories: list[Story] = []
    places: dict[int, int] = {}  # line number -> place among the sentences
    sentences: list[Sentence] = []
    last = 0
    for row, number, content in _lines(path, text):
        if number == 1:
            places, sentences = {}, []
        elif number != last + 1:
            due = f"number {last + 1} or 1" if last else "number 1"
            raise ValueError(f"{path}:{row}: expected {due}, got {number}")
        last = number
        if "\t" in content:
            stories.append(_question(f"{path}:{row}", content, sentences, places))
        else:
            places[number] = len(sentences)
            sentences.append(_words(content, f"{path}:{row}"))
    if not stories:
        raise ValueError(f"{path}: expected at least one question, got none")
    return stories


def _lines(path: Path, text: str) -> Iterator[tuple[int, int, str]]:
    for row, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            number, _, content = line.rstrip("\r").partition(" ")
            if not _is_number(number) or int(number) < 1:
                raise ValueError(f"{path}:{row}: expected a line number, got {number[:20]!r}")
            yield row, int(number), content


def _is_number(text: str) -> bool:
    # the length: Python refuses to convert thousands of digits, and names no line when it does
    return text.isascii() and text.isdigit() and len(text) < 10


def _words(content: str, where: str) -> Sentence:
    words = tuple(content.strip().rstrip(".?!").split())
    if not words:
        raise ValueError(f"{where}: expected words, got {content!r}")
    return words


def _question(where: str, content: str, sentences: list[Sentence], places: dict[int, int]) -> Story:
    fields = [field.strip() for field in content.split("\t")]
    if len(fields) not in (2, 3) or not fields[1]:
        raise ValueError(
            f"{where}: expected question, answer and supporting lines between tabs, got {fields}"
        )
    if not sentences:
        raise ValueError(f"{where}: expected a sentence before the question, got none")
    support = []
    for number in fields[2].split() if len(fields) == 3 else []:
        if not _is_number(number) or int(number) not in places:
            raise ValueError(
                f"{where}: expected the number of an earlier sentence, got {number[:20]!r}"
            )
        support.append(places[int(number)])
    return Story(
        sentences=tuple(sentences),
        question=_words(fields[0], where),
        answer=fields[1],
        support=tuple(support),
    )
