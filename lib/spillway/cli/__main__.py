"""Run the command as `python -m spillway.cli`, for places where it is not installed."""

import sys

from spillway.cli import main

sys.exit(main())
