"""The harness for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import os
from types import TracebackType
from typing import Any, AsyncGenerator, Mapping

from ._config import DEFAULT_MODEL, DEFAULT_TIMEOUT, RECEIPT_TIMEOUT, Config, new_session_id, prompt_params
from ._errors import DshError, ReceiptTimeout, RequestError, RunTimeout, late
from ._process import START_PATIENCE, Process, find_binary
from ._turn import Turn
from ._types import Json, RunResult, StreamItem


class AsyncHarness:
    """One dsh process, as an asynchronous context manager. The same as Harness; its methods are coroutines."""

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

    async def __aenter__(self) -> AsyncHarness:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def start(self) -> None:
        """Starts the process. A context manager does it by itself."""
        if self._process is not None:
            return
        self._process = Process(find_binary(self._binary), self._config.env)
        try:
            self.server_info = (await self._call("initialize", self._config.params))["serverInfo"]
        except BaseException:
            process, self._process = self._process, None
            await asyncio.shield(asyncio.to_thread(process.close, START_PATIENCE))
            raise

    async def close(self) -> None:
        """Ends the process and everything it started. Closing twice is fine."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.shield(asyncio.to_thread(process.close))

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._running().pid

    def _running(self) -> Process:
        if self._process is None:
            raise DshError("the harness isn't started; use it in an async with statement")
        return self._process

    async def _call(self, method: str, params: Mapping[str, Any]) -> Any:
        future = self._running().request(method, params)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._receipt)
        except asyncio.TimeoutError:
            raise ReceiptTimeout(f"dsh didn't answer {method} within {self._receipt} s") from None

    async def run(
        self, prompt: str | list[dict[str, Any]], *, session_id: str | None = None, timeout: float = DEFAULT_TIMEOUT,
    ) -> RunResult:
        """Sends a message and waits for the end of its turn. Cancelling the task cancels the turn."""
        turn = Turn(session_id or new_session_id())
        async with contextlib.aclosing(self._follow(turn, prompt, timeout)) as items:
            async for _ in items:
                pass
        assert turn.result is not None
        return turn.result

    def stream(
        self, prompt: str | list[dict[str, Any]], *, session_id: str | None = None, timeout: float = DEFAULT_TIMEOUT,
    ) -> AsyncGenerator[StreamItem, None]:
        """Like run, but gives events and live text as they come; the last event is the turn's end. Closing it early cancels the turn."""
        return self._follow(Turn(session_id or new_session_id()), prompt, timeout)

    async def _follow(self, turn: Turn, prompt: str | list[dict[str, Any]], timeout: float) -> AsyncGenerator[StreamItem, None]:
        process = self._running()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        notifications: asyncio.Queue[tuple[str, Json]] = asyncio.Queue()

        def sink(method: str, params: Json) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(notifications.put_nowait, (method, params))

        leave = process.subscribe(turn.session_id, sink)
        open_turn = False  # it may be
        try:
            receipt = process.request("session/prompt", prompt_params(turn.session_id, prompt))
            open_turn = True
            try:
                turn.message_id = (await asyncio.wait_for(asyncio.wrap_future(receipt), min(self._receipt, timeout)))["messageId"]
            except RequestError:
                open_turn = False
                raise
            except asyncio.TimeoutError:
                raise late(self._receipt, timeout) from None
            while turn.result is None:
                try:
                    method, params = await asyncio.wait_for(notifications.get(), max(0.0, deadline - loop.time()))
                except asyncio.TimeoutError:
                    raise RunTimeout(f"the run took longer than {timeout} s") from None
                if not method:
                    raise process.death()
                for item in turn.feed(method, params):
                    yield item
        finally:
            leave()
            if open_turn and turn.result is None:
                with contextlib.suppress(DshError):
                    process.request("session/cancel", turn.cancel_params())

    async def cancel(self, session_id: str) -> None:
        """Ends the session's turn and empties its queue. Its run returns with finish_reason aborted."""
        await self._call("session/cancel", {"sessionId": session_id})

    async def resume(self, session_id: str) -> None:
        """Opens a stored session; an error when there is none."""
        await self._call("session/resume", {"sessionId": session_id})

    async def close_session(self, session_id: str) -> None:
        """Ends the session's agent and shell. Its log stays; another process may take it up."""
        await self._call("session/close", {"sessionId": session_id})

    async def sessions(self) -> list[dict[str, Any]]:
        """The stored sessions, newest first."""
        out: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = await self._call("session/list", {"limit": 200, **({"cursor": cursor} if cursor else {})})
            out += page["sessions"]
            cursor = page.get("nextCursor", "")
            if not cursor:
                return out
