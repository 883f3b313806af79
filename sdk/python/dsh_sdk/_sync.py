"""The harness for ordinary code."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import time
from types import TracebackType
from typing import Any, Generator, Mapping

from ._config import DEFAULT_MODEL, DEFAULT_TIMEOUT, RECEIPT_TIMEOUT, Config, new_session_id, prompt_params
from ._errors import DshError, ReceiptTimeout, RequestError, RunTimeout, late
from ._process import START_PATIENCE, Process, find_binary
from ._turn import Turn
from ._types import Event, Json, RunResult, StreamItem


class Harness:
    """One dsh process. Use it as a context manager. Safe to use from several threads.

    ``home`` is where sessions are kept; without it $DSH_HOME counts, then ~/.dsh. ``env`` adds to the process's environment.
    """

    def __init__(
        self, *, provider: str = "deepseek", model: str = DEFAULT_MODEL, max_tokens: int | None = None, reasoning_effort: str | None = None,
        cwd: str | os.PathLike[str] | None = None, home: str | os.PathLike[str] | None = None, system_prompt: str | None = None,
        binary: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None, receipt_timeout: float = RECEIPT_TIMEOUT,
    ) -> None:
        self._config = Config(provider, model, max_tokens, reasoning_effort, cwd, home, system_prompt, env, deltas=True)
        self._binary = binary
        self._receipt = receipt_timeout
        self._process: Process | None = None
        self.server_info: dict[str, Any] = {}

    def __enter__(self) -> Harness:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Starts the process. A context manager does it by itself."""
        if self._process is not None:
            return
        self._process = Process(find_binary(self._binary), self._config.env)
        try:
            self.server_info = self._call("initialize", self._config.params)["serverInfo"]
        except BaseException:
            process, self._process = self._process, None
            process.close(START_PATIENCE)
            raise

    def close(self) -> None:
        """Ends the process and everything it started. Closing twice is fine."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._running().pid

    def _running(self) -> Process:
        if self._process is None:
            raise DshError("the harness isn't started; use it in a with statement")
        return self._process

    def _call(self, method: str, params: Mapping[str, Any]) -> Any:
        future = self._running().request(method, params)
        try:
            return future.result(timeout=self._receipt)
        except concurrent.futures.TimeoutError:
            raise ReceiptTimeout(f"dsh didn't answer {method} within {self._receipt} s") from None

    def run(
        self, prompt: str | list[dict[str, Any]], *, session_id: str | None = None, timeout: float = DEFAULT_TIMEOUT,
    ) -> RunResult:
        """Sends a message and waits for the end of its turn. Without an id it begins a new session; a known id goes on with its history."""
        turn = Turn(session_id or new_session_id())
        for _ in self._follow(turn, prompt, timeout):
            pass
        assert turn.result is not None
        return turn.result

    def stream(
        self, prompt: str | list[dict[str, Any]], *, session_id: str | None = None, timeout: float = DEFAULT_TIMEOUT,
    ) -> Generator[StreamItem, None, None]:
        """Like run, but gives events and live text as they come; the last event is the turn's end. Leaving it early cancels the turn."""
        return self._follow(Turn(session_id or new_session_id()), prompt, timeout)

    def _follow(self, turn: Turn, prompt: str | list[dict[str, Any]], timeout: float) -> Generator[StreamItem, None, None]:
        process = self._running()
        deadline = time.monotonic() + timeout
        notifications: queue.SimpleQueue[tuple[str, Json]] = queue.SimpleQueue()
        leave = process.subscribe(turn.session_id, lambda method, params: notifications.put((method, params)))
        open_turn = False  # it may be
        try:
            receipt = process.request("session/prompt", prompt_params(turn.session_id, prompt))
            open_turn = True
            try:
                turn.message_id = receipt.result(timeout=min(self._receipt, timeout))["messageId"]
            except RequestError:
                open_turn = False
                raise
            except concurrent.futures.TimeoutError:
                raise late(self._receipt, timeout) from None
            while turn.result is None:
                try:
                    method, params = notifications.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    raise RunTimeout(f"the run took longer than {timeout} s") from None
                if not method:
                    raise process.death()
                yield from turn.feed(method, params)
        finally:
            leave()
            if open_turn and turn.result is None:
                with contextlib.suppress(DshError):
                    process.request("session/cancel", turn.cancel_params())

    def cancel(self, session_id: str) -> None:
        """Ends the session's turn and empties its queue. Its run returns with finish_reason aborted."""
        self._call("session/cancel", {"sessionId": session_id})

    def resume(self, session_id: str) -> None:
        """Opens a stored session; an error when there is none."""
        self._call("session/resume", {"sessionId": session_id})

    def close_session(self, session_id: str) -> None:
        """Ends the session's agent and shell. Its log stays; another process may take it up."""
        self._call("session/close", {"sessionId": session_id})

    def sessions(self) -> list[dict[str, Any]]:
        """The stored sessions, newest first."""
        out: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self._call("session/list", {"limit": 200, **({"cursor": cursor} if cursor else {})})
            out += page["sessions"]
            cursor = page.get("nextCursor", "")
            if not cursor:
                return out


__all__ = ["Event", "Harness"]
