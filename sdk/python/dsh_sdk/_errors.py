"""What can go wrong, by type."""

from __future__ import annotations

from typing import Any


class DshError(Exception):
    """The base of every error of this package."""


class BinaryNotFound(DshError):
    """There is no dsh binary to start."""


class ProcessDied(DshError):
    """The dsh process ended, or never started to answer. ``stderr`` is the end of what it printed there."""

    def __init__(self, message: str, returncode: int | None = None, stderr: str = "") -> None:
        tail = stderr.strip()
        super().__init__(message + (f"\n--- dsh's stderr ends with ---\n{tail}" if tail else ""))
        self.returncode = returncode
        self.stderr = stderr


class RequestError(DshError):
    """dsh refused a request."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class ReceiptTimeout(DshError):
    """dsh didn't say in time that it took a request."""


class RunTimeout(DshError):
    """A run took longer than its deadline. The turn was cancelled."""


def late(receipt: float, run: float) -> DshError:
    """The error of a message that dsh didn't take before the first of two deadlines, in seconds."""
    if run < receipt:
        return RunTimeout(f"the run took longer than {run} s")
    return ReceiptTimeout(f"dsh didn't answer session/prompt within {receipt} s")
