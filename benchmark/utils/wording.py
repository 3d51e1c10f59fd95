"""How numbers and names are written for a reader: the same way in every command."""

from __future__ import annotations

from reports.storage.text import byte_size, counted, decimal, near, number

__all__ = ["byte_size", "counted", "decimal", "near", "number"]
