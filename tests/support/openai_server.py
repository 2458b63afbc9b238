"""A server on this machine that speaks the protocol of OpenAI's chat completions: what it says is written down."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG = "hang"
DOWN = "down"
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """An answer that is a call of a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"id": f"call_{name}", "type": "function", "function": function}]}


class OpenAIServer:
    """Gives these answers, one after the other: text, `call(…)`, `HANG` or `DOWN` (an error of the server)."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.left = 0  # how many who were kept waiting have hung up
        self.stopped = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                server.requests.append({"path": self.path, **json.loads(body)})
                server.answer(self, server.requests[-1])

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"

    def answer(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        """Answer one request."""
        answer = self.answers.pop(0)
        if answer == HANG:
            self._wait(handler)
        elif answer == DOWN:
            self._send(handler, 503, {"error": {"message": "overloaded", "type": "server_error"}})
        elif request.get("stream"):
            self._stream(handler, request, answer)
        else:
            message = {"role": "assistant", "content": None, **(answer if isinstance(answer, dict) else {})}
            if isinstance(answer, str):
                message["content"] = answer
            reason = "tool_calls" if isinstance(answer, dict) else "stop"
            choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
            self._send(handler, 200, {**_head(request, "chat.completion"), "choices": [choice], "usage": USAGE})

    @contextmanager
    def running(self) -> Iterator[OpenAIServer]:
        """It listens inside the block."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self.stopped.set()
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def _wait(self, handler: BaseHTTPRequestHandler) -> None:
        handler.connection.settimeout(0.05)
        while not self.stopped.is_set():
            try:
                if not handler.connection.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.left += not self.stopped.is_set()
        handler.close_connection = True

    def _stream(self, handler: BaseHTTPRequestHandler, request: dict[str, Any], answer: str) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        head = _head(request, "chat.completion.chunk")
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": word + " "} for word in answer.split()]
        for delta in deltas:
            self._event(handler, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        self._event(handler, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        handler.wfile.write(b"data: [DONE]\n\n")
        handler.close_connection = True

    def _event(self, handler: BaseHTTPRequestHandler, data: dict[str, Any]) -> None:
        handler.wfile.write(f"data: {json.dumps(data)}\n\n".encode())

    def _send(self, handler: BaseHTTPRequestHandler, status: int, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def _head(request: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "x", "object": kind, "created": 1, "model": request["model"]}
