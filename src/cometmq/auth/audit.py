"""The audit log: who was refused what, and who changed users and policies. Never a password, never a signature."""

import logging
from typing import Final

AUDIT: Final = logging.getLogger("cometmq.audit")
