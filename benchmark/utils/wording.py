"""How numbers and names are written for a reader: the same way in every command, and in the reports.

Commands and datasets import nothing of the reports themselves, which would bring their libraries along.
"""

from __future__ import annotations

from reports.wording import byte_size, counted, decimal, number

__all__ = ["byte_size", "counted", "decimal", "number"]
