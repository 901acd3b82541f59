"""Tests of sockets run on both event loops."""

from tests.support.net import run_on

__all__ = ["run_on"]
