#!/usr/bin/env python3
"""Give the minimal agent one task in a directory, and print what it does.

    minimal.py [--workspace DIR] [--model ID] [--provider deepseek] [--session-id ID] "task"

Without a key: --provider demo --model demo, a script that answers instead of a model.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from pathlib import Path
from typing import Any

try:
    import dsh_sdk  # noqa: F401  # pyright: ignore[reportUnusedImport]  the installed one, with the binary its wheel carries
except ModuleNotFoundError as e:
    if e.name != "dsh_sdk":
        raise
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run from a checkout without installing

from dsh_sdk import Delta, DshError, Harness  # noqa: E402


def text_of(content: list[dict[str, Any]]) -> str:
    """The text of a message's blocks, and of the blocks inside them."""
    return "".join(b["text"] if b["type"] == "text" else text_of(b.get("content") or []) for b in content)


def main() -> int:
    parser = argparse.ArgumentParser(description="Give the minimal agent one task.")
    parser.add_argument("task")
    parser.add_argument("--workspace", default=".", help="the directory it works in")
    parser.add_argument("--model", default=os.environ.get("DSH_MODEL") or "deepseek-v4-flash")
    parser.add_argument("--provider", default="deepseek")
    parser.add_argument("--session-id", help="go on with this session")
    args = parser.parse_args()
    session = args.session_id or str(uuid.uuid4())
    finish, error, shown = "", "", ""
    try:
        with Harness(provider=args.provider, model=args.model, cwd=args.workspace) as harness:
            for item in harness.stream(args.task, session_id=session):
                if isinstance(item, Delta):
                    if item.kind == "text":
                        print(item.text, end="", flush=True)
                        shown += item.text
                elif item.type == "assistant/message":  # it has the whole text; what came live may lack the end
                    text = text_of(item.data["message"]["content"])
                    rest = text[len(shown):] if text.startswith(shown) else "\n" + text
                    if shown + rest:
                        print(rest, flush=True)
                    shown = ""
                elif item.type == "tool/call":
                    print(f"[{item.data['name']}] {item.data['arguments']}", flush=True)
                elif item.type == "tool/result":
                    print(text_of(item.data["message"]["content"]), flush=True)
                elif item.type == "turn/end":
                    reason = item.data["reason"]
                    finish, error = reason["kind"], reason.get("message", "")
    except DshError as e:
        print(f"minimal.py: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\n-- interrupted (session {session})")
        return 130
    if shown:
        print()
    print(f"-- {finish}{': ' + error if error else ''} (session {session})")
    return 0 if finish == "completed" else 1


if __name__ == "__main__":
    sys.exit(main())
