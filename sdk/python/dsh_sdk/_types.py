"""What a run gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union, cast

Json = dict[str, Any]


def json_object(value: object) -> Json:
    """The value if it is a JSON object, else an empty one."""
    return cast(Json, value) if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Event:
    """One durable event of a session's log."""

    session_id: str
    seq: int
    time: int  # epoch milliseconds
    type: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Delta:
    """A piece of text in progress. It is provisional: the ``assistant/message`` event of its step has the whole text, also what no delta told. A higher
    ``attempt`` of a step withdraws lower ones."""

    session_id: str
    turn: int
    step: int
    attempt: int
    block: int
    offset: int  # bytes of UTF-8
    kind: str  # text, reasoning, tool
    text: str
    name: str = ""  # of the tool


StreamItem = Union[Event, Delta]


@dataclass(frozen=True)
class Usage:
    """Tokens of one run, all its model calls together."""

    input_tokens: int = 0  # without those read from the cache
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class RunResult:
    """How a run went. ``finish_reason`` is the kind of the turn's end: completed, aborted, error, max-tokens, max-steps, context-full,
    timeout, blocked, interrupted; or cancelled, when the message was taken out of the queue before its turn began."""

    session_id: str
    final_response: str
    finish_reason: str
    events: list[Event] = field(repr=False)
    usage: Usage
    error: str = ""  # the sentence that belongs to any finish_reason but completed
    error_code: str = ""  # and its machine code
