"""A folder of results: one CSV per item, each row written as soon as it is measured.

Existing rows are not measured again, so that an interrupted run continues. `run.json` has the facts
of the rows; a run on another machine, or with another build or effort, is refused.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from srdma.errors import LocalError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)
else:
    R = TypeVar("R")

FACTS = "run.json"
READ = {"str": str, "int": int, "float": float}


class Folder:
    """facts: values that all rows must share, such as commit and machine; strings and numbers.

    The constructor creates the folder. Raises LocalError if it has other facts or is not writable.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path = path
        self.facts = json.loads(json.dumps(facts))
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not (path / FACTS).exists():
                self.write(FACTS, json.dumps(self.facts, indent=2) + "\n")
        except OSError as error:
            raise _unwritable(path, error) from None
        self._check(path / FACTS)

    def _check(self, path: Path) -> None:
        try:
            there = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise LocalError(f"{path} cannot be read ({error}): name a new folder") from None
        if not isinstance(there, dict):
            raise LocalError(f"{path} does not belong to results: name a new folder")
        differ = [
            f"{name} {there.get(name)!r}, now {self.facts.get(name)!r}"
            for name in sorted(there.keys() | self.facts.keys())
            if there.get(name) != self.facts.get(name)
        ]
        if differ:
            raise LocalError(
                f"{self.path} has results of another run ({'; '.join(differ)}): "
                "name a new folder, or repeat the options of that run"
            )

    def write(self, name: str, text: str | bytes) -> Path:
        """Write a file atomically: it has the new or the old content. Returns its path."""
        path, new = self.path / name, self.path / f".{name}.new"
        try:
            new.write_bytes(text.encode() if isinstance(text, str) else text)
            new.replace(path)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        return path

    def table(self, name: str, row: type[R], keys: Sequence[str]) -> Table[R]:
        """The CSV of an item: rows are dataclasses of str, int and float with the unique key
        `keys`."""
        return Table(self.path / f"{name}.csv", row, keys)


class Table(Generic[R]):
    """Rows in the order in which they were measured."""

    def __init__(self, path: Path, row: type[R], keys: Sequence[str]) -> None:
        self.path, self._row, self._keys = path, row, tuple(keys)
        hints = get_type_hints(row)
        self._read = {field.name: READ[hints[field.name].__name__] for field in fields(row)}
        self._rows: dict[tuple[Any, ...], R] = {}
        self._load()

    def _load(self) -> None:
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
            whole = data[: data.rfind(b"\n") + 1]  # the row of an incomplete line is repeated
            text = whole.decode()
            if whole != data or not whole:
                self._append("" if whole else _line(list(self._read)), size=len(whole))
        except OSError as error:
            raise _unwritable(self.path, error) from None
        except UnicodeDecodeError as error:
            raise LocalError(f"{self.path}: {error}: name a new folder") from None
        for words in csv.DictReader(io.StringIO(text)):
            self._keep(self._parse(words))

    def _parse(self, words: dict[str, Any]) -> R:
        if list(words) != list(self._read) or None in words.values():
            raise LocalError(
                f"{self.path} has other columns than {', '.join(self._read)}: name a new folder"
            )
        try:
            return self._row(**{name: read(words[name]) for name, read in self._read.items()})
        except ValueError as error:
            raise LocalError(f"{self.path}: {error}: name a new folder") from None

    def _keep(self, row: R) -> None:
        self._rows[self._key(asdict(row))] = row

    def _key(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(values[name] for name in self._keys)

    def _append(self, text: str, size: int | None = None) -> None:
        """Append the text, after truncation to `size` if given, and sync it to disk."""
        with open(self.path, "a+b") as file:
            if size is not None:
                file.truncate(size)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows.values())

    def get(self, **key: Any) -> R | None:
        """The row with that key, or None."""
        return self._rows.get(self._key(key))

    def add(self, row: R) -> R:
        """Store a new row. Raises LocalError if its key exists or the file is not writable."""
        values = asdict(row)
        if self._key(values) in self._rows:
            raise LocalError(f"{self.path} has a row for {self._key(values)} already")
        try:
            self._append(_line(list(values.values())))
        except OSError as error:
            raise _unwritable(self.path, error) from None
        self._keep(row)
        return row


def _line(values: Sequence[Any]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(values)
    return out.getvalue()


def _unwritable(path: Path, error: OSError) -> LocalError:
    return LocalError(f"{path} cannot be written ({error.strerror}): name another folder")
