"""The watch function."""

from fanfold.service.functions.watch import handler

__all__ = ["handler"]
