"""The sweeper function."""

from fanfold.service.functions.sweeper import handler

__all__ = ["handler"]
