"""`cometmq export`: see `transfer`."""

from cometmq.cli.transfer import EXPORT
from cometmq.cli.transfer import main_export as main

__all__ = ["EXPORT", "main"]
