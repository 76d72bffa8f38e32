"""Run the evidence: `python -m evidence`."""

from evidence.run import main

raise SystemExit(main())
