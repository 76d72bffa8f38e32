"""`python -m spillway.evidence`."""

from spillway.evidence.run import main

raise SystemExit(main())
