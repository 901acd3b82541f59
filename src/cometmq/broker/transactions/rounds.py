"""What is done about transactions by the clock, see `Rounds`.

    timer             first after                  then every
    open halves       transactionCheckInterval     the same               transactions.py
    ended halves      transactionOpBatchInterval   the same
    half counts       10 s                         10 s
"""

from collections.abc import Callable

from cometmq.broker.config import BrokerConfig
from cometmq.broker.periodic import Rounds
from cometmq.broker.tables.files import HALF_COUNTS, OFFSETS
from cometmq.broker.tables.tables import Tables
from cometmq.broker.transactions.transactions import Transactions
from cometmq.clock import Clock


class TransactionRounds(Rounds):
    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        transactions: Transactions,
        tables: Tables,
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        super().__init__(clock)
        self._config = config
        self._transactions = transactions
        self._tables = tables
        self._soon = soon

    def open(self) -> None:
        self._transactions.open()

    def start(self) -> None:
        every = self._periods.every
        every("transactions", self._round_s, self._transactions.begin_round, self._round_s())
        every("ops", self._tend_s, self._tend, self._tend_s())
        every("half counts", lambda: 10.0, self._save_counts, 10)

    def resume(self) -> None:
        self._soon(self._transactions.begin_round)

    def finish(self) -> None:
        self._transactions.close()

    def _round_s(self) -> float:
        return self._config().transaction_check_interval_ms / 1000

    def _tend_s(self) -> float:
        return self._config().op_interval_ms / 1000

    def _tend(self) -> None:
        self._transactions.tend(save_progress=not self._tables.files.is_saving(OFFSETS))

    def _save_counts(self) -> None:
        self._transactions.counts.keep_only(self._tables.topics.table)
        self._tables.files.save_soon(HALF_COUNTS)
