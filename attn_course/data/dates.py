"""Dates in words to ISO 8601, character by character, with the alignment known."""

from dataclasses import dataclass
from datetime import date, timedelta

import torch
from torch import Generator

from attn_course.data.batch import Batch, collate
from attn_course.data.vocabulary import Vocabulary

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)

# {d} 3, {dd} 03, {th} 3rd, {m} 5, {mm} 05, {mon} apr, {month} april, {y} 1987
FORMATS = (
    "{th} of {month} {y}",
    "the {th} of {month} {y}",
    "{month} {d}, {y}",
    "{d} {month} {y}",
    "{d} {mon} {y}",
    "{mon} {th} {y}",
    "{dd}.{mm}.{y}",
    "{d}.{m}.{y}",
    "{y}/{mm}/{dd}",
    "{y} {month} {d}",
)
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2099, 12, 31)

DATE_SOURCE_VOCABULARY = Vocabulary(sorted(set("0123456789 ,./").union(*MONTHS, "the of st nd rd")))
DATE_TARGET_VOCABULARY = Vocabulary("0123456789-")


@dataclass(frozen=True, kw_only=True)
class DatePair:
    """One date, written twice.

    Attributes:
        source: Such as ``3rd of may 1987``.
        target: Such as ``1987-05-03``.
        alignment: For each target character the place of the source character that decides it: the
            digit itself for the year and the day, the first letter of a month's name for both
            digits of the month; -1 for hyphens and for a leading zero the source does not write.
    """

    source: str
    target: str
    alignment: tuple[int, ...]


def write_date(day: date, form: str) -> DatePair:
    """Write a day in one of ``FORMATS`` and note where every target character comes from.

    Args:
        day: The day.
        form: A format such as ``"{th} of {month} {y}"``.

    Raises:
        ValueError: If the format does not hold exactly one day, one month and one year field.
    """
    fields = {
        "d": ("day", str(day.day)),
        "dd": ("day", f"{day.day:02d}"),
        "th": ("day", f"{day.day}{_ordinal_suffix(day.day)}"),
        "m": ("month", str(day.month)),
        "mm": ("month", f"{day.month:02d}"),
        "mon": ("month", MONTHS[day.month - 1][:3]),
        "month": ("month", MONTHS[day.month - 1]),
        "y": ("year", f"{day.year:04d}"),
    }
    text, starts = "", {}
    for part in form.replace("{", "\0{").replace("}", "}\0").split("\0"):
        if part.startswith("{"):
            if part[1:-1] not in fields:
                raise ValueError(f"form: expected fields {sorted(fields)}, got {part} in {form!r}")
            kind, written = fields[part[1:-1]]
            if kind in starts:
                raise ValueError(f"form: expected one {kind} field, got more in {form!r}")
            starts[kind] = (len(text), written)
            text += written
        else:
            text += part
    if len(starts) != 3:
        raise ValueError(f"form: expected a day, a month and a year field, got {form!r}")

    year, _ = starts["year"]
    alignment = (
        *range(year, year + 4),
        -1,
        *_two_digits(*starts["month"]),
        -1,
        *_two_digits(*starts["day"]),
    )
    return DatePair(source=text, target=day.isoformat(), alignment=alignment)


def date_pairs(number: int, generator: Generator) -> list[DatePair]:
    """Draw dates: day (1900 to 2099) and format are drawn evenly.

    Args:
        number: How many.
        generator: Source of all randomness; the same state gives the same dates.

    Raises:
        ValueError: If ``number`` is negative.
    """
    if number < 0:
        raise ValueError(f"number: expected at least 0, got {number}")
    days = torch.randint((LAST_DAY - FIRST_DAY).days + 1, (number,), generator=generator)
    forms = torch.randint(len(FORMATS), (number,), generator=generator)
    return [
        write_date(FIRST_DAY + timedelta(days=day), FORMATS[form])
        for day, form in zip(days.tolist(), forms.tolist(), strict=True)
    ]


def date_normalisation(batch_size: int, generator: Generator) -> Batch:
    """A batch of ``date_pairs`` as character ids.

    Ids are those of ``DATE_SOURCE_VOCABULARY`` and ``DATE_TARGET_VOCABULARY``.

    Args:
        batch_size: Rows.
        generator: Source of all randomness.

    Returns:
        A batch with its ``alignment``.

    Raises:
        ValueError: If ``batch_size < 1``.
    """
    pairs = date_pairs(batch_size, generator)
    return collate(
        [DATE_SOURCE_VOCABULARY.encode(pair.source) for pair in pairs],
        [DATE_TARGET_VOCABULARY.encode(pair.target) for pair in pairs],
        alignments=[pair.alignment for pair in pairs],
    )


def _ordinal_suffix(day: int) -> str:
    if day in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def _two_digits(start: int, written: str) -> tuple[int, int]:
    digits = sum(character.isdigit() for character in written)
    if digits == 0:
        return start, start
    return (start, start + 1) if digits == 2 else (-1, start)
