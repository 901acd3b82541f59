"""`cometmq import`: see `transfer`."""

from cometmq.cli.transfer import IMPORT
from cometmq.cli.transfer import main_import as main

__all__ = ["IMPORT", "main"]
