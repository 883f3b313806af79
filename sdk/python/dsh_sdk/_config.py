"""What a harness is made of; the same for both kinds."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, Mapping

DEFAULT_MODEL = "deepseek-v4-flash"
DEFAULT_TIMEOUT = 3600.0  # seconds of one run
RECEIPT_TIMEOUT = 60.0  # seconds until a request is answered


class Config:
    def __init__(
        self, provider: str, model: str, max_tokens: int | None, reasoning_effort: str | None, cwd: str | os.PathLike[str] | None,
        home: str | os.PathLike[str] | None, system_prompt: str | None, env: Mapping[str, str] | None, deltas: bool,
    ) -> None:
        self.env = {**os.environ, **(env or {})}
        self.params: dict[str, Any] = {
            "cwd": os.path.abspath(os.fspath(cwd) if cwd is not None else self.env.get("DSH_CWD") or os.getcwd()),
            "provider": provider, "model": model, "deltas": deltas,
        }
        if max_tokens is not None:
            self.params["maxTokens"] = max_tokens
        if reasoning_effort is not None:
            self.params["reasoningEffort"] = reasoning_effort
        if home is not None:
            self.env["DSH_HOME"] = os.path.abspath(os.fspath(home))
            if "DSH_SESSION_ROOT" not in (env or {}):  # an argument counts more than what happens to be in the environment
                self.env.pop("DSH_SESSION_ROOT", None)
        elif not self.env.get("DSH_HOME") and not self.env.get("DSH_SESSION_ROOT"):
            self.env["DSH_HOME"] = str(Path.home() / ".dsh")
        if system_prompt is not None:
            self.env["DSH_SYSTEM_PROMPT"] = system_prompt


def new_session_id() -> str:
    return str(uuid.uuid4())


def prompt_params(session_id: str, prompt: str | list[dict[str, Any]]) -> dict[str, Any]:
    blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else prompt
    return {"sessionId": session_id, "contentBlocks": blocks}
