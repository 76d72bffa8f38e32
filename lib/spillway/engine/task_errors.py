"""Errors of tasks: how an exception travels from a task to the driver, and what an engine's own error says.

A task returns an exception as a value (`caught`), with its stack as text. The driver raises it again (`raised`): the
same type and message as in this process, with the task's stack as its cause. So an error does not depend on the engine.

If Spark itself fails (a lost executor, a worker without Python), it raises `JobFailed` with the cause that Spark
reports, which is not in the first line of its message.
"""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from spillway.errors import SpillwayError

Item = TypeVar("Item")
Result = TypeVar("Result")

_PYTHON_STACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
_LOST_TASK = re.compile(r"(?:Lost task|failed \d+ times, most recent failure:)[^\n]*?\): ([^\n]+)")
_CAUSED_BY = re.compile(r"^Caused by: ([^\n]+)", re.MULTILINE)
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+([A-Z]\w*)(?=: |$)")


class JobFailed(RuntimeError):
    """Spark could not run a job; the message is the cause that Spark reports."""


class TaskFailed(RuntimeError):
    """An exception of a task that cannot be pickled; the message is its stack."""


class _TaskStack(Exception):
    """The stack of an exception in its task, shown as the cause of the exception."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True)
class Failed:
    """An exception of a task, as the task returns it."""

    pickled: bytes | None
    stack: str


class Thrown(Failed):
    """An exception that the driver raises; a `Failed` is a result that the caller looks at."""


def caught(function: Callable[[Item], Result], item: Item, kind: type[Failed] = Failed) -> Result | Failed:
    """Return the function's result, or its exception as a value of `kind`."""
    try:
        return function(item)
    except Exception as problem:
        stack = "".join(traceback.format_exception(problem))
        try:
            pickled = pickle.dumps(problem)
            pickle.loads(pickled)  # some exceptions pickle, and cannot be made again
        except Exception:
            pickled = None
        return kind(pickled, stack)


def raised(failed: Failed) -> Exception:
    """Return the exception of a task, to be raised by the driver.

    >>> found = caught(lambda number: 1 // number, 0)
    >>> raised(found)
    ZeroDivisionError('integer division or modulo by zero')
    """
    if failed.pickled is None:
        return TaskFailed(failed.stack)
    problem: Exception = pickle.loads(failed.pickled)
    if not isinstance(problem, SpillwayError):  # its sentence says all
        problem.__cause__ = _TaskStack(failed.stack)
    return problem


def cause_of(problem: BaseException) -> str:
    r"""Return an engine's error as one line: the cause at its end, not the call that met it.

    >>> cause_of(RuntimeError("An error occurred while calling o1.x.\n: Wrapped\nCaused by: java.io.IOException: full"))
    'IOException: full'
    >>> cause_of(RuntimeError("Task 0 failed 1 times, most recent failure: Lost task 0 (TID 3): java.io.EOFException"))
    'EOFException'
    >>> cause_of(KeyError("site"))
    "KeyError: 'site'"
    """
    text = str(problem).strip()
    found = inner_cause(text)
    if found is not None:
        return found
    first = text.partition("\n")[0]
    return f"{type(problem).__name__}: {first}" if first else type(problem).__name__


def inner_cause(text: str) -> str | None:
    """Return the cause that an engine's message ends with: of a task's stack, or of Java's; None if it has none."""
    for found in (_PYTHON_STACK.search(text), _LOST_TASK.search(text), _last(_CAUSED_BY, text)):
        if found is not None:
            return _JAVA_CLASS.sub(r"\1", found.group(1).strip())
    return None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = [*pattern.finditer(text)]
    return found[-1] if found else None
