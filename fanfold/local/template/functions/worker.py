"""The worker function."""

from fanfold.service.functions.worker import handler

__all__ = ["handler"]
