"""How many copies of a message must be there before its producer is told OK, the master's own included.

    mode            copies                                                too few replicas that keep up
    plain           inSyncReplicas (2 if not set)                         stored, SLAVE_NOT_AVAILABLE at once
    acting master   the same, but with enableAutoInSyncReplicas as many   refused before anything is stored:
                    as keep up now, and minInSyncReplicas at least        IN_SYNC_REPLICAS_NOT_ENOUGH

With allAckInSyncStateSet every replica that keeps up must have the message, and never fewer than the table says.
"""

from __future__ import annotations

from typing import Final, Protocol

# RocketMQ 5.5 takes 1, which waits for nobody: docs/decisions/0045-sync-master-waits.md
COPIES_DEFAULT: Final = 2


class QuorumOptions(Protocol):
    in_sync_replicas: int
    in_sync_replicas_min: int
    in_sync_replicas_auto: bool
    all_in_sync_replicas: bool


def copies_needed(options: QuorumOptions, acting_master: bool, available: int) -> int:
    """`available`: how many copies there would be if every replica that keeps up took the message."""
    copies = options.in_sync_replicas or COPIES_DEFAULT
    if acting_master and options.in_sync_replicas_auto:
        copies = max(options.in_sync_replicas_min, min(copies, available))
    if options.all_in_sync_replicas:
        copies = max(copies, available)
    return copies
