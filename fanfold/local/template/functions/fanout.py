"""The fan-out function."""

from fanfold.service.functions.fanout import handler

__all__ = ["handler"]
