"""`cometmq import`: see `transfer`."""

from cometmq.cli.shared.transfer import IMPORT
from cometmq.cli.shared.transfer import main_import as main

__all__ = ["IMPORT", "main"]
