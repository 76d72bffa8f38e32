"""The only place that reads or writes: session, table contracts, idempotent writes, ledger."""
