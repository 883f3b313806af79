"""One dsh process and the frames that travel to and from it."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, Callable, Mapping

from ._errors import BinaryNotFound, ProcessDied, RequestError
from ._types import Json, json_object

Sink = Callable[[str, Json], None]  # method, params; method "" means that the process is gone
START_PATIENCE = 1.0  # seconds for the end of a process that didn't start well, and has nothing to keep
_STDERR_KEPT = 64 << 10


def find_binary(binary: str | os.PathLike[str] | None) -> str:
    """The argument, $DSH_BIN, the wheel's own, dsh on PATH: the first that is given counts."""
    given = binary or os.environ.get("DSH_BIN")
    if given:
        found = shutil.which(os.fspath(given))
        if found is None:
            raise BinaryNotFound(f"{os.fspath(given)} is not a program that can be started")
        return found
    own = Path(__file__).parent / "bin" / ("dsh.exe" if os.name == "nt" else "dsh")
    if own.is_file():
        return str(own)
    found = shutil.which("dsh")
    if found is None:
        raise BinaryNotFound("there is no dsh binary: install the wheel that carries one, set DSH_BIN, or put dsh on PATH")
    return found


class Process:
    """Starts at once. Safe to use from several threads. Close it."""

    def __init__(self, binary: str, env: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # None closes the process's stdin
        self._numbers = itertools.count(1)
        self._pending: dict[int, concurrent.futures.Future[Any]] = {}
        self._sinks: dict[str, list[Sink]] = collections.defaultdict(list)
        self._dead: ProcessDied | None = None
        self._closed = False
        self._stderr = bytearray()
        try:
            self._p = subprocess.Popen(
                [binary, "--profile", "sdk-minimal"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=dict(env), bufsize=0,
                start_new_session=True,  # Ctrl-C at a terminal interrupts the caller, who decides what ends
            )
        except OSError as e:
            raise ProcessDied(f"{binary} can't be started: {e}") from e
        self._threads = [
            threading.Thread(target=self._read_stderr, name="dsh stderr", daemon=True),
            threading.Thread(target=self._read, name="dsh stdout", daemon=True),
            threading.Thread(target=self._write, name="dsh stdin", daemon=True),
        ]
        for t in self._threads:
            t.start()

    @property
    def pid(self) -> int:
        return self._p.pid

    @property
    def stderr(self) -> str:
        with self._lock:
            return self._stderr.decode("utf-8", "replace")

    def request(self, method: str, params: Mapping[str, Any]) -> concurrent.futures.Future[Any]:
        """Sends a request, without waiting until the process takes it. The future has its result, a RequestError, or ProcessDied."""
        number = next(self._numbers)
        frame = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self._lock:
            if self._dead is not None:
                raise self._dead
            self._pending[number] = future
            self._frames.put(frame)
        return future

    def _write(self) -> None:
        """Writes the frames: whole ones, whatever interrupts the callers' threads. Only this one waits for a process that doesn't read."""
        assert self._p.stdin is not None
        try:
            while (frame := self._frames.get()) is not None:
                view = memoryview(frame)
                while view:
                    view = view[self._p.stdin.write(view) :]
            self._p.stdin.close()
        except (OSError, ValueError):
            pass  # the process is gone: its reader says so, and fails the futures

    def subscribe(self, session_id: str, sink: Sink) -> Callable[[], None]:
        """Gives every notification of a session to sink, from now on. Sinks must not block. The returned function ends it."""
        with self._lock:
            if self._dead is not None:
                raise self._dead
            self._sinks[session_id].append(sink)

        def leave() -> None:
            with self._lock:
                sinks = self._sinks.get(session_id, [])
                if sink in sinks:
                    sinks.remove(sink)
                if not sinks:
                    self._sinks.pop(session_id, None)

        return leave

    def death(self) -> ProcessDied:
        with self._lock:
            return self._dead or ProcessDied("the dsh process is gone")

    def _read(self) -> None:
        assert self._p.stdout is not None
        buffer = bytearray()
        searched = 0
        while True:
            try:
                chunk = self._p.stdout.read(1 << 16)
            except (OSError, ValueError):
                chunk = b""
            if not chunk:
                break
            buffer += chunk
            while (end := buffer.find(b"\n", searched)) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                searched = 0
                self._frame(line)
            searched = len(buffer)
        self._died()

    def _frame(self, line: bytes) -> None:
        try:
            frame = json_object(json.loads(line))
        except (ValueError, RecursionError):
            return
        method, number = frame.get("method"), frame.get("id")
        if isinstance(method, str):
            params = json_object(frame.get("params"))
            with self._lock:
                sinks = list(self._sinks.get(str(params.get("sessionId", "")), ()))
            for sink in sinks:
                sink(method, params)
            return
        if not isinstance(number, int):
            return
        with self._lock:
            future = self._pending.pop(number, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if frame.get("error") is not None:
            error = json_object(frame["error"])
            future.set_exception(RequestError(error.get("code", 0), error.get("message", "refused"), error.get("data")))
        else:
            future.set_result(frame.get("result"))

    def _read_stderr(self) -> None:
        assert self._p.stderr is not None
        while True:
            try:
                chunk = self._p.stderr.read(1 << 16)
            except (OSError, ValueError):
                return
            if not chunk:
                return
            with self._lock:
                self._stderr += chunk
                del self._stderr[:-_STDERR_KEPT]

    def _died(self) -> None:
        try:
            code: int | None = self._p.wait(timeout=10)
        except subprocess.TimeoutExpired:
            code = None
        self._threads[0].join(timeout=1)  # the last words
        message = "the harness is closed" if self._closed else f"the dsh process ended with exit code {code}"
        tail = self.stderr
        with self._lock:
            self._dead = ProcessDied(message, code, "" if self._closed else tail)
            pending, sinks = list(self._pending.values()), [s for group in self._sinks.values() for s in group]
            self._pending.clear()
            self._frames.put(None)
        for future in pending:
            if future.set_running_or_notify_cancel():
                future.set_exception(self._dead)
        for sink in sinks:
            sink("", {})

    def close(self, patience: float = 10.0) -> int | None:
        """Asks the process to end, then makes it. Gives its exit code. Closing twice is fine."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first and self._p.poll() is None:
            with contextlib.suppress(Exception):
                self.request("shutdown", {}).result(timeout=patience / 2)
            self._frames.put(None)  # the end of its input
            for end in (lambda: None, self._p.terminate, self._p.kill):
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._p.wait(timeout=patience / 4)
                    break
        for t in self._threads:
            if t is not threading.current_thread():
                t.join(timeout=patience)
        for stream in (self._p.stdin, self._p.stdout, self._p.stderr):
            with contextlib.suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()
        return self._p.poll()
