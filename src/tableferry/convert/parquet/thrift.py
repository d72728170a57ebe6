"""Thrift's compact protocol, as far as a Parquet footer goes.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Deeper than any footer, and shallow enough for Python's own stack.
DEEPEST = 100

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


class Broken(ValueError):
    """The bytes aren't what they should be."""


class Reader:
    """Reads values one after another; structs become dictionaries by field number, strings stay bytes.

    What it makes is never larger than what it reads by more than a constant factor, whatever lengths the
    bytes claim.

    Raises:
        Broken: The bytes aren't a value, or end within one.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def fields(self, number: int = 0) -> Iterator[tuple[int, int]]:
        """Go through a struct's fields after that one, as number and kind; take a value before the next."""
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            yield number, head & 15

    def value(self, kind: int, depth: int = 0) -> Any:
        """Read a value."""
        if kind in (I16, I32, I64):
            return self._integer()
        if kind == BINARY:
            return self._bytes(self._length())
        if depth > DEEPEST:
            raise Broken(f"values in more than {DEEPEST} others")
        if kind == STRUCT:
            return {number: self.value(kind, depth + 1) for number, kind in self.fields()}
        if kind in (LIST, SET):
            count, kind = self.list_head()
            return [self.item(kind, depth + 1) for _ in range(count)]
        if kind in (TRUE, FALSE):
            return kind == TRUE
        if kind == BYTE:
            return int.from_bytes(self._bytes(1), signed=True)
        if kind == DOUBLE:
            return self._bytes(8)
        raise Broken(f"a value of kind {kind}")

    def list_head(self) -> tuple[int, int]:
        """Read how many items a list has, and of which kind."""
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._length()
        # An item takes a byte at least.
        if count > len(self.data) - self.at:
            raise Broken("a list that is longer than what's left")
        return count, head & 15

    def item(self, kind: int, depth: int = 0) -> Any:
        """Read an item of a list, where truth takes a byte."""
        return self._byte() == TRUE if kind in (TRUE, FALSE) else self.value(kind, depth)

    def _byte(self) -> int:
        try:
            byte = self.data[self.at]
        except IndexError:
            raise Broken("an end where there should be more") from None
        self.at += 1
        return byte

    def _bytes(self, count: int) -> bytes:
        start = self.at
        self.at = start + count
        if self.at > len(self.data):
            raise Broken("an end where there should be more")
        return self.data[start : self.at]

    def _length(self) -> int:
        byte = self._byte()
        if byte < 128:
            return byte
        number, shift = byte & 127, 7
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise Broken("a number of more than 64 bits")

    def _integer(self) -> int:
        raw = self._length()
        return (raw >> 1) ^ -(raw & 1)
