"""The API function."""

from fanfold.service.functions.api import handler

__all__ = ["handler"]
