"""A scripted model behind a real HTTP server, in the chat-completions form."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterator, Optional

# A script looks at a request and gives the pieces of the answer: text, ("call", name, arguments), or an Event to wait for.
Script = Callable[[dict], list]


class ModelServer:
    """Use it as a context manager. ``requests`` holds the bodies that came in."""

    def __init__(self, script: Script) -> None:
        self.requests: list[dict[str, Any]] = []
        self.stop = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    for chunk in outer.chunks(script(body)):
                        data = f"data: {chunk}\n\n".encode()
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    self.close_connection = True  # the client gave up

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def chunks(self, pieces: list) -> Iterator[str]:
        finish = "stop"
        calls = 0
        for piece in pieces:
            if isinstance(piece, threading.Event):
                while not piece.wait(0.02) and not self.stop.is_set():
                    pass
                continue
            delta: Optional[dict] = None
            if isinstance(piece, str):
                delta = {"content": piece}
            else:
                _, name, arguments = piece
                number = len(self.requests)
                delta = {"tool_calls": [{
                    "index": calls, "id": f"call_{number}_{calls}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)},
                }]}
                calls += 1
                finish = "tool_calls"
            yield json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield json.dumps({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        yield json.dumps({"id": "x", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}})
        yield "[DONE]"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def results(body: dict) -> int:
    """How many tool results the last turn of a request holds."""
    n = 0
    for message in reversed(body["messages"]):
        if message["role"] == "tool":
            n += 1
        elif message["role"] == "user":
            break
    return n
