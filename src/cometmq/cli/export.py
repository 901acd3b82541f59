"""`cometmq export`: see `transfer`."""

from cometmq.cli.shared.transfer import EXPORT
from cometmq.cli.shared.transfer import main_export as main

__all__ = ["EXPORT", "main"]
