"""Write the reference of the frozen lake, or compare the present code with it.

python -m tests.frozen reference [FOLDER]   # make the lake, and write the reference: `make frozen-lake`
python -m tests.frozen same [FOLDER]        # make the lake, and compare it with the reference: `make same`

FOLDER is emptied and keeps the lake (default: a temporary folder). The reference is written again only by a commit
that says what changed in the stored rows or in the texts.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

from tests.frozen.compare import compare_with_reference, write_reference
from tests.frozen.lake import die_in_command


def main(arguments: list[str]) -> int:
    """Run one of the commands; return its exit code."""
    if arguments[:1] == ["die"]:
        moment, table, place, *command = arguments[1:]
        die_in_command(command, datetime.fromisoformat(moment), table, place)
        return 0
    folder = Path(arguments[1]) if len(arguments) == 2 else None
    if arguments[:1] == ["reference"] and len(arguments) <= 2:
        write_reference(folder)
        return 0
    if arguments[:1] == ["same"] and len(arguments) <= 2:
        return 1 if compare_with_reference(folder) else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
