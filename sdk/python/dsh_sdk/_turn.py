"""Reading one run out of a session's notifications."""

from __future__ import annotations

from ._types import Delta, Event, Json, RunResult, StreamItem, Usage, json_object


class Turn:
    """Follows the turn of one message. Feed it every notification of its session, in order."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.message_id = ""  # once the receipt is there
        self.result: RunResult | None = None
        self._events: list[Event] = []  # what the caller has seen
        self._held: list[Event] | None = None  # may be ours: the next user/message says it
        self._current = 0  # turn that is open
        self._ours = 0
        self._queued = False
        self._text = ""
        self._usage = [0, 0, 0, 0, 0]

    def cancel_params(self) -> Json:
        """Names the message, so that the session's other runs go on; without a receipt there is only the session to name."""
        return {"sessionId": self.session_id, **({"messageId": self.message_id} if self.message_id else {})}

    def feed(self, method: str, params: Json) -> list[StreamItem]:
        """Takes a notification; gives what the caller sees of it. ``result`` is set with the last one."""
        if method == "session.event":
            seen = self._event(json_object(params.get("event")))
            self._events.extend(seen)  # the result's too
            return [*seen]
        if method == "session.delta":
            if self._ours == 0 or params.get("turn") != self._ours:
                return []
            return [Delta(
                self.session_id, self._ours, params.get("step", 0), params.get("attempt", 0), params.get("block", 0),
                params.get("offset", 0), params.get("kind", "text"), params.get("text", ""), params.get("name", ""),
            )]
        if method == "session.status" and params.get("status") == "idle" and self._queued and self._ours == 0:
            self._finish("cancelled", {"message": "The message was taken out of the queue."})
        return []

    def _event(self, e: Json) -> list[Event]:
        kind, data = str(e.get("type", "")), json_object(e.get("data"))
        event = Event(self.session_id, e.get("seq", -1), e.get("time", 0), kind, data)
        if self._ours == 0:
            return self._before(event)
        if kind == "assistant/message" and data.get("turn") == self._ours:
            content: list[Json] = json_object(data.get("message")).get("content") or []
            self._text = "".join(b.get("text", "") for b in content if b.get("type") == "text")
            usage = json_object(data.get("usage"))
            for i, name in enumerate(("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens")):
                self._usage[i] += usage.get(name, 0)
        elif kind == "turn/end" and data.get("turn") == self._ours:
            reason = json_object(data.get("reason"))
            self._finish(reason.get("kind", "completed"), reason)
        return [event]

    def _before(self, event: Event) -> list[Event]:
        """An event from before our turn is known to be open. It is ours when no other message's turn goes on, and that is known with a delay."""
        if event.type == "agent/inbox/spliced":
            inserted: list[Json] = event.data.get("inserted") or []
            if any(m.get("id") == self.message_id for m in inserted):
                self._queued, self._held = True, []
                return [event]
        elif event.type == "turn/start":
            self._current, self._held = event.data.get("turn", 0), self._held or []
        elif event.type == "turn/end":
            self._held = [] if self._queued else None
            return []
        if self._held is None:
            return []
        self._held.append(event)
        if event.type == "user/message":
            held, self._held = self._held, None
            if event.data.get("id") == self.message_id:
                self._ours = self._current
                return held
        return []

    def _finish(self, kind: str, reason: Json) -> None:
        self.result = RunResult(
            self.session_id, self._text, kind, self._events, Usage(*self._usage), reason.get("message", ""), reason.get("code", ""),
        )
