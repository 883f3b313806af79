"""Drive the dsh coding agent from Python.

One harness is one ``dsh`` process. ``Harness`` is for ordinary code, ``AsyncHarness`` for asyncio. Standard library only.
"""

from ._async import AsyncHarness
from ._errors import (
    BinaryNotFound,
    DshError,
    ProcessDied,
    ReceiptTimeout,
    RequestError,
    RunTimeout,
)
from ._sync import Harness
from ._types import Delta, Event, RunResult, StreamItem, Usage

__all__ = [
    "AsyncHarness",
    "BinaryNotFound",
    "Delta",
    "DshError",
    "Event",
    "Harness",
    "ProcessDied",
    "ReceiptTimeout",
    "RequestError",
    "RunResult",
    "RunTimeout",
    "StreamItem",
    "Usage",
]
__version__ = "0.1.0"
