"""A wheel that carries the binary, installed offline into a fresh environment; one run per carrier."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile
from pathlib import Path

from dsh_sdk._process import find_binary
from model_server import ModelServer, results

ROOT = Path(__file__).resolve().parent.parent

RUN = """
import json, sys
from dsh_sdk import Harness
with Harness(cwd=sys.argv[1]) as h:
    r = h.run("go", timeout=120)
context = [e.data for e in r.events if e.type == "request/context"]
results = [e.data for e in r.events if e.type == "tool/result"]
print(json.dumps({"finish": r.finish_reason, "context": context, "results": results}))
"""


@unittest.skipIf(importlib.util.find_spec("ensurepip") is None, "this Python can't make an environment with pip")
class Wheel(unittest.TestCase):
    def test_carriers(self) -> None:
        binary = Path(find_binary(None)).resolve()
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(temporary.cleanup)
        base = Path(temporary.name)
        built = subprocess.run(
            [sys.executable, str(ROOT / "build_wheel.py"), "--binary", str(binary), "--out", str(base / "dist")], check=True, capture_output=True, text=True,
        )
        wheel = Path(built.stdout.strip())
        with zipfile.ZipFile(wheel) as z:
            self.assertIsNone(z.testzip())
        first = wheel.read_bytes()
        subprocess.run([sys.executable, str(ROOT / "build_wheel.py"), "--binary", str(binary), "--out", str(base / "dist")], check=True, capture_output=True)
        self.assertEqual(first, wheel.read_bytes(), "the same input gave another wheel")

        venv.create(base / "env", with_pip=True)
        python = base / "env" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", str(wheel)], check=True)
        own = next((base / "env" / "lib").glob("python*/site-packages/dsh_sdk/bin/dsh"))
        self.assertTrue(os.access(own, os.X_OK))

        onpath = base / "bin"
        onpath.mkdir()
        shutil.copy2(binary, onpath / "dsh")
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("DSH_", "DEEPSEEK_", "PYTHON"))}
        # The example runs on the installed package, not on the checkout it lies in, which has no binary.
        (base / "ws-example").mkdir()
        nowhere = {**plain, "DSH_HOME": str(base / "home-example"), "PATH": "/usr/bin:/bin"}
        p = subprocess.run(
            [python, str(ROOT / "examples" / "minimal.py"), "--provider", "demo", "--model", "demo", "--workspace", str(base / "ws-example"), "run: echo $((6*7))\nsay: done"],
            env=nowhere, cwd=base, capture_output=True, text=True, timeout=180,
        )
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn("-- completed", p.stdout)
        for carrier in ("wheel", "DSH_BIN", "PATH"):
            with self.subTest(carrier), ModelServer(script) as server:
                ws = base / f"ws-{carrier}"
                ws.mkdir()
                env = {
                    **plain, "DSH_HOME": str(base / f"home-{carrier}"), "DSH_SYSTEM_PROMPT": "From the environment.", "DSH_CONTEXT_WINDOW": "54321",
                    "DSH_MODEL": "not-read-here", "DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "key-for-tests", "WS": str(ws),
                }
                if carrier == "DSH_BIN":
                    own.rename(own.with_suffix(".away"))
                    env["DSH_BIN"] = str(binary)
                elif carrier == "PATH":
                    env["PATH"] = f"{onpath}:{env['PATH']}"
                p = subprocess.run([python, "-c", RUN, str(ws)], env=env, cwd=base, capture_output=True, text=True, timeout=180)
                self.assertEqual(p.returncode, 0, p.stderr)
                out = json.loads(p.stdout)
                self.assertEqual(out["finish"], "completed")
                self.assertEqual(len(out["results"]), 3)
                self.assertIn("kept", json.dumps(out["results"][1]))
                self.assertEqual((ws / "note.txt").read_text(), "by the editor")
                self.assertEqual(server.requests[0]["messages"][0]["content"], "From the environment.")
                self.assertEqual(server.requests[0]["model"], "deepseek-v4-flash")


def script(body: dict) -> list:
    n = results(body)
    if n == 0:
        return [("call", "bash", {"command": "MARK=kept; pwd"})]
    if n == 1:
        return [("call", "bash", {"command": "echo $MARK"})]
    if n == 2:
        cwd = next(m["content"] for m in body["messages"] if m["role"] == "tool")
        path = str(Path(text_of(cwd).strip().splitlines()[0]) / "note.txt")
        return [("call", "str_replace_editor", {"command": "create", "path": path, "file_text": "by the editor"})]
    return ["done"]


def text_of(content) -> str:
    return content if isinstance(content, str) else "".join(c.get("text", "") for c in content)


if __name__ == "__main__":
    unittest.main()
