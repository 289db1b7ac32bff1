"""The dead-letter function."""

from fanfold.service.functions.deadletter import handler

__all__ = ["handler"]
