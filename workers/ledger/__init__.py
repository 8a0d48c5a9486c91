"""The budget of a machine pool that several installations on one machine share.

A file a pool, under a file lock. Each sharer declares its cap and the smallest counts; a
row names its compute and ends exactly when that is provably gone, whoever sees it.
"""

from workers.ledger.ledger import (
    Granted,
    LedgerUnavailable,
    MachineLedger,
    Reservation,
    TurnedDown,
)
from workers.ledger.place import ledger_directory

__all__ = [
    "Granted",
    "LedgerUnavailable",
    "MachineLedger",
    "Reservation",
    "TurnedDown",
    "ledger_directory",
]
