"""`python -m spillway.cli`, for places where the command is not installed."""

import sys

from spillway.cli import main

sys.exit(main())
