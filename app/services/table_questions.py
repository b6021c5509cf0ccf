"""What only a person can say about a table: asked once per file or column, then applied."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, Final

KEEP: Final = "keep"
SHEET, HEADER, ENCODING = "sheet", "header", "encoding"

_DATE = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})")
_ISO_ORDER = re.compile(r"(\d{4})[./](\d{1,2})[./](\d{1,2})")
_COMMA_NUMBER = re.compile(r"[+-]?(?:\d{1,3}(?:[.\u00a0 ]\d{3})+|\d+),\d+|[+-]?\d{1,3}(?:,\d{3})+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+")
_ZIP_NAME = re.compile(r"(?:us_)?zip(?:_?codes?)?|.*_zip(?:_?codes?)?")
_MONTHS: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec|mrz|mai|okt|dez"
_MONTH_NAME = re.compile(rf"\d{{1,2}}[- ]?(?:{_MONTHS})|(?:{_MONTHS})[- ]?\d{{2}}", re.IGNORECASE)
# A column is taken for dates or numbers when this share of its values are.
_MOST: Final = 0.5
_MAX_NUMBER_LENGTH: Final = 20
_MAX_MONTH_LENGTH: Final = 7
_CENTURY_TURN: Final = 69  # POSIX: 69-99 are 1969-1999


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One possible answer, and what it makes of a value of the file."""

    value: str
    label: str
    example: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Asked of a person; without a required answer no work can start from the table."""

    question_id: str
    text: str
    choices: tuple[Choice, ...]
    preset: str | None = None
    is_required: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Question:
        """Read what `to_dict` wrote."""
        return cls(**{**data, "choices": tuple(Choice(**item) for item in data["choices"])})


@dataclass(kw_only=True)
class ColumnProfile:
    """What the values of one column look like; fed value by value."""

    name: str
    key: str
    seen: int = 0
    dates: int = 0
    day_first: str = ""  # a value that can only be day first
    month_first: str = ""
    date_example: str = ""
    commas: int = 0
    decimals: int = 0  # values whose comma cannot stand for thousands
    comma_example: str = ""
    zips: int = 0
    short_zips: int = 0
    zip_example: str = ""
    month_name: tuple[str, int, int] | None = None  # value, row, line
    _is_zip: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._is_zip = _ZIP_NAME.fullmatch(self.key) is not None

    def feed(self, value: str, row: int, line: int) -> None:
        if not value:
            return
        self.seen += 1
        if value[0].isdigit() or value[0] in "+-":
            if len(value) <= _MAX_NUMBER_LENGTH:
                self._feed_number(value, row, line)
        elif len(value) <= _MAX_MONTH_LENGTH and value[:3].lower() in _MONTHS:
            self._feed_month(value, row, line)

    def _feed_number(self, value: str, row: int, line: int) -> None:
        if self._is_zip and value.isdigit():
            self._feed_zip(value)
        elif "," in value:
            self._feed_comma(value)
        elif match := _DATE.fullmatch(value):
            self._feed_date(value, int(match[1]), int(match[3]))
        elif value[-1].isalpha():
            self._feed_month(value, row, line)

    def _feed_month(self, value: str, row: int, line: int) -> None:
        if self.month_name is None and _MONTH_NAME.fullmatch(value):
            self.month_name = (value, row, line)

    def questions(self, *, is_required: bool) -> list[Question]:
        """What has to be asked about this column; `is_required` where it fills a placeholder."""
        asked: list[Question] = []
        if self.dates > self.seen * _MOST:
            asked.append(self._ask_date(is_required=is_required))
        if self.commas > self.seen * _MOST:
            asked.append(self._ask_number(is_required=is_required))
        if self.short_zips and self.zips == self.seen:
            asked.append(self._ask_zip(is_required=is_required))
        return asked

    def _feed_date(self, value: str, first: int, second: int) -> None:
        if not 1 <= first <= 31 or not 1 <= second <= 31:
            return
        self.dates += 1
        self.date_example = self.date_example or value
        if first > 12:
            self.day_first = self.day_first or value
        if second > 12:
            self.month_first = self.month_first or value

    def _feed_comma(self, value: str) -> None:
        if _COMMA_NUMBER.fullmatch(value):
            self.commas += 1
            self.comma_example = self.comma_example or value
            self.decimals += not _THOUSANDS.fullmatch(value)

    def _feed_zip(self, value: str) -> None:
        if len(value) in (3, 4, 5):
            self.zips += 1
            if len(value) < 5:
                self.short_zips += 1
                self.zip_example = self.zip_example or value

    def _ask_date(self, *, is_required: bool) -> Question:
        example = self.day_first or self.month_first or self.date_example
        # Nobody writes 31.12. with the month first.
        is_day_first = self.day_first or "." in self.date_example
        preset = None
        if bool(is_day_first) != bool(self.month_first):
            preset = "day_first" if is_day_first else "month_first"
        return self._ask(
            "date",
            f"In “{self.name}”, what comes first in {example}?",
            [("day_first", "The day"), ("month_first", "The month"), (KEEP, "Keep it as text")],
            example=self.date_example,
            preset=preset,
            is_required=is_required,
        )

    def _ask_number(self, *, is_required: bool) -> Question:
        return self._ask(
            "number",
            f"In “{self.name}”, what does the comma in {self.comma_example} mean?",
            [
                ("decimal", "It begins the decimals"),
                ("thousands", "It separates thousands"),
                (KEEP, "Keep it as text"),
            ],
            example=self.comma_example,
            preset="decimal" if self.decimals else None,
            is_required=is_required,
        )

    def _ask_zip(self, *, is_required: bool) -> Question:
        return self._ask(
            "zip",
            f"“{self.name}” has {self.short_zips:,} codes like {self.zip_example}. Are these US ZIP"
            " codes that lost their leading zeros?",
            [("pad", "Yes, put the zeros back"), (KEEP, "No, keep them")],
            example=self.zip_example,
            preset=None,
            is_required=is_required,
        )

    def _ask(
        self,
        kind: str,
        text: str,
        answers: list[tuple[str, str]],
        *,
        example: str,
        preset: str | None,
        is_required: bool,
    ) -> Question:
        choices = tuple(
            Choice(value=value, label=label, example=self._shown(kind, value, example))
            for value, label in answers
        )
        return Question(
            question_id=f"{kind}:{self.key}",
            text=text,
            choices=choices,
            preset=preset if is_required else KEEP,
            is_required=is_required,
        )

    def _shown(self, kind: str, answer: str, example: str) -> str:
        convert = _CONVERTERS.get((kind, answer))
        result = convert(example) if convert else None
        return f"{example} → {result}" if result is not None else ""


def find_converter(answers: Mapping[str, str], key: str) -> Callable[[str], str | None] | None:
    """What the answers do to the values of a column; the function gives None for a misfit."""
    for kind in ("date", "number", "zip"):
        convert = _CONVERTERS.get((kind, answers.get(f"{kind}:{key}", KEEP)))
        if convert is not None:
            return convert
    return None


def _to_iso(value: str, *, is_day_first: bool) -> str | None:
    match = _DATE.fullmatch(value)
    if match is None:
        return value.replace("/", "-").replace(".", "-") if _ISO_ORDER.fullmatch(value) else value
    first, second, year = int(match[1]), int(match[3]), int(match[4])
    if len(match[4]) == 2:
        year += 1900 if year >= _CENTURY_TURN else 2000
    day, month = (first, second) if is_day_first else (second, first)
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return None


def _to_point(value: str) -> str | None:
    if not _COMMA_NUMBER.fullmatch(value):
        return value
    if value.count(",") > 1:
        return None
    whole, _, decimals = value.partition(",")
    return re.sub(r"[.\u00a0 ]", "", whole) + "." + decimals


def _without_thousands(value: str) -> str | None:
    if not _COMMA_NUMBER.fullmatch(value):
        return value
    return value.replace(",", "") if _THOUSANDS.fullmatch(value) else None


def _pad(value: str) -> str:
    return value.zfill(5) if value.isdigit() else value


_CONVERTERS: Final[Mapping[tuple[str, str], Callable[[str], str | None]]] = {
    ("date", "day_first"): lambda value: _to_iso(value, is_day_first=True),
    ("date", "month_first"): lambda value: _to_iso(value, is_day_first=False),
    ("number", "decimal"): _to_point,
    ("number", "thousands"): _without_thousands,
    ("zip", "pad"): _pad,
}
