"""The client on the real binary and a real HTTP model server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

from dsh_sdk import (
    AsyncHarness, BinaryNotFound, Delta, DshError, Event, Harness, ProcessDied, ReceiptTimeout, RequestError, RunTimeout,
)
from dsh_sdk._config import Config
from model_server import ModelServer, results

HERE = Path(__file__).resolve().parent


class Case(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(temporary.cleanup)
        self.home = Path(temporary.name) / "home"
        self.ws = Path(temporary.name) / "ws"
        self.ws.mkdir()

    def model(self, script) -> ModelServer:
        server = ModelServer(script)
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def options(self, server: ModelServer, **more) -> dict:
        return {
            "model": "test-model", "cwd": self.ws, "home": self.home,
            "env": {"DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "key-for-tests"}, **more,
        }

    def harness(self, server: ModelServer, **more) -> Harness:
        return Harness(**self.options(server, **more))

    def fake(self, text: str) -> Path:
        """A program that stands for dsh."""
        path = self.home.parent / "fake"
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path


# The beginning of a program that stands for dsh: it answers initialize.
GREETING = """import json, sys, time
def take():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)
def give(frame):
    print(json.dumps(frame), flush=True)
give({"id": take()["id"], "result": {"serverInfo": {"name": "fake"}}})
"""


class Running(Case):
    def test_run(self) -> None:
        server = self.model(lambda body: [("call", "bash", {"command": "echo from-the-shell"})] if results(body) == 0 else ["all ", "done"])
        with self.harness(server, system_prompt="Be someone.", max_tokens=123) as h:
            self.assertEqual(h.server_info["name"], "deepseek-harness-sdk-runtime")
            r = h.run("go")
            self.assertEqual((r.final_response, r.finish_reason, r.error), ("all done", "completed", ""))
            self.assertEqual((r.usage.input_tokens, r.usage.output_tokens, r.usage.cache_read_tokens), (12, 10, 8))
            self.assertIn("from-the-shell", json.dumps(server.requests[-1]))
            self.assertEqual(server.requests[0]["messages"][0]["content"], "Be someone.")
            self.assertEqual([t["function"]["name"] for t in server.requests[0]["tools"]], ["bash", "str_replace_editor"])
            self.assertEqual([e.seq for e in r.events], list(range(r.events[0].seq, r.events[-1].seq + 1)))
            again = h.run("more", session_id=r.session_id)
            self.assertEqual(again.finish_reason, "completed")
            self.assertEqual([s["id"] for s in h.sessions()], [r.session_id])
        with self.harness(server) as h:  # another process goes on
            h.resume(r.session_id)
            h.run("and more", session_id=r.session_id)
            users = [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "user"]
            self.assertEqual(users, ["go", "more", "and more"])

    def test_stream(self) -> None:
        gate = threading.Event()
        server = self.model(lambda body: ["one ", gate, "two"])
        with self.harness(server) as h:
            text, types = "", []
            for item in h.stream("go"):
                if isinstance(item, Delta):
                    text += item.text
                    gate.set()
                else:
                    types.append(item.type)
            self.assertTrue(text.startswith("one "), text)
            self.assertEqual((types[0], types[-1]), ("agent/inbox/spliced", "turn/end"))

    def test_leaving_a_stream_cancels(self) -> None:
        server = self.model(lambda body: ["one ", threading.Event()] if len(server.requests) == 1 else ["fine"])
        with self.harness(server) as h:
            stream = h.stream("go", session_id="s")
            for item in stream:
                if isinstance(item, Delta):
                    break
            stream.close()
            self.assertEqual(h.run("again", session_id="s", timeout=30).final_response, "fine")

    def test_cancel(self) -> None:
        server = self.model(lambda body: ["half", threading.Event()])
        with self.harness(server) as h, concurrent.futures.ThreadPoolExecutor() as pool:
            run = pool.submit(h.run, "go", session_id="s")
            seen = threading.Event()
            watch = h._running().subscribe("s", lambda method, params: seen.set() if method == "session.delta" else None)
            self.assertTrue(seen.wait(30))
            watch()
            second = pool.submit(h.run, "queued", session_id="s")
            while "queued" not in json.dumps(next(s for s in h.sessions() if s["id"] == "s")) and h.sessions()[0].get("queued", 0) == 0:
                pass
            h.cancel("s")
            self.assertEqual(run.result(30).finish_reason, "aborted")
            self.assertEqual(run.result().final_response, "half")
            self.assertEqual(second.result(30).finish_reason, "cancelled")

    def test_leaving_a_run_ends_no_other(self) -> None:
        gate = threading.Event()
        server = self.model(lambda body: ["half", gate, " and whole"])
        with self.harness(server) as h, concurrent.futures.ThreadPoolExecutor() as pool:
            first = pool.submit(h.run, "go", session_id="s")
            while not server.requests:
                time.sleep(0.01)
            with self.assertRaises(RunTimeout):
                h.run("queued", session_id="s", timeout=0.2)
            gate.set()
            self.assertEqual(first.result(30).final_response, "half and whole")
        self.assertEqual(len(server.requests), 1)

    def test_two_sessions_at_once(self) -> None:
        server = self.model(lambda body: [body["messages"][-1]["content"] + "!"])
        with self.harness(server) as h, concurrent.futures.ThreadPoolExecutor() as pool:
            runs = [pool.submit(h.run, f"n{i}") for i in range(8)]
            self.assertEqual([r.result(60).final_response for r in runs], [f"n{i}!" for i in range(8)])


    def test_a_stream_shows_its_own_turn_only(self) -> None:
        gate = threading.Event()
        server = self.model(lambda body: ["a", gate, "b"] if len(server.requests) == 1 else ["c"])
        with self.harness(server) as h, concurrent.futures.ThreadPoolExecutor() as pool:
            first = pool.submit(h.run, "one", session_id="s")
            while not server.requests:
                time.sleep(0.01)
            items = []
            for item in h.stream("two", session_id="s"):
                items.append(item)
                gate.set()  # the message is queued behind the first one's turn
            turns = {e.data["turn"] for e in items if isinstance(e, Event) and "turn" in e.data}
            self.assertEqual(turns, {2})
            self.assertEqual([e.type for e in items if isinstance(e, Event)].count("turn/end"), 1)
            self.assertIn("user/message", [e.type for e in items if isinstance(e, Event)])
            self.assertEqual({e.data["turn"] for e in first.result(30).events if "turn" in e.data}, {1})

    def test_an_interrupt_leaves_the_harness(self) -> None:
        server = self.model(lambda body: ["x", threading.Event()] if len(server.requests) == 1 else ["fine"])
        program = (
            "import os, sys\nfrom dsh_sdk import Harness\n"
            "with Harness(model='m', cwd=sys.argv[1], home=sys.argv[2]) as h:\n"
            "    try:\n        for item in h.stream('go', session_id='s'): print(item, flush=True)\n"
            "    except KeyboardInterrupt: pass\n"
            "    print(h.run('again', session_id='s', timeout=60).final_response)\n"
        )
        env = {**os.environ, "DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "key-for-tests", "PYTHONPATH": str(HERE.parent)}
        p = subprocess.Popen(
            [sys.executable, "-c", program, str(self.ws), str(self.home)], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )
        assert p.stdout is not None
        while "Delta" not in p.stdout.readline():
            self.assertIsNone(p.poll())
        os.killpg(p.pid, signal.SIGINT)  # what a terminal does on Ctrl-C
        out, _ = p.communicate(timeout=60)
        self.assertEqual((out.splitlines()[-1], p.returncode), ("fine", 0))


class Asyncio(Case):
    def test_run_stream_and_cancel(self) -> None:
        never = threading.Event()
        server = self.model(lambda body: ["x", never] if "hang" in json.dumps(body["messages"][-1]) else ["hello ", "there"])

        async def main() -> None:
            async with AsyncHarness(**self.options(server)) as h:
                first, second = await asyncio.gather(h.run("a"), h.run("b"))
                self.assertEqual((first.final_response, second.final_response), ("hello there", "hello there"))
                items = [item async for item in h.stream("c", session_id=first.session_id)]
                self.assertIsInstance(items[-1], Event)
                self.assertEqual(items[-1].type, "turn/end")
                with self.assertRaises(RunTimeout):
                    await h.run("hang", session_id="s", timeout=0.5)
                task = asyncio.create_task(h.run("hang", session_id="s"))
                while not any("hang" in json.dumps(r) for r in server.requests[4:]):
                    await asyncio.sleep(0.01)
                await h.cancel("s")
                self.assertEqual((await task).finish_reason, "aborted")
                self.assertEqual(len(await h.sessions()), 3)
                await h.close_session("s")
                with self.assertRaises(RequestError):
                    await h.cancel("s")

        asyncio.run(asyncio.wait_for(main(), 120))

    def test_break_and_go_on(self) -> None:
        server = self.model(lambda body: ["x", threading.Event()] if len(server.requests) == 1 else ["fine"])

        async def main() -> None:
            async with AsyncHarness(**self.options(server)) as h:
                async for item in h.stream("go", session_id="s"):
                    if isinstance(item, Delta):
                        break
                self.assertEqual((await h.run("again", session_id="s", timeout=60)).final_response, "fine")

        asyncio.run(main())

    def test_cancelled_start(self) -> None:
        fake = self.fake("import sys\nsys.stdin.read()\n")

        async def main() -> None:
            task = asyncio.create_task(AsyncHarness(binary=fake, home=self.home).start())
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        self.assertEqual([t.name for t in threading.enumerate() if t.name.startswith("dsh ")], [])


class Failing(Case):
    def test_turn_error(self) -> None:
        server = self.model(lambda body: [])
        with self.harness(server, env={"DEEPSEEK_API_KEY": ""}) as h:
            r = h.run("go")
            self.assertEqual((r.finish_reason, r.error_code), ("error", "MISSING_CREDENTIAL"))
            self.assertIn("DEEPSEEK_API_KEY", r.error)

    def test_refusals(self) -> None:
        server = self.model(lambda body: ["x"])
        with self.assertRaisesRegex(RequestError, "nope"):
            self.harness(server, provider="nope").start()
        with self.harness(server) as h:
            with self.assertRaises(RequestError) as caught:
                h.resume("nobody")
            self.assertEqual(caught.exception.code, -32603)
            with self.assertRaises(RequestError):
                h.run([{"type": "video"}])
        with self.assertRaises(DshError):
            h.run("closed by now")

    def test_deadline(self) -> None:
        server = self.model(lambda body: ["x", threading.Event()] if len(server.requests) == 1 else ["y"])
        with self.harness(server) as h:
            with self.assertRaises(RunTimeout):
                h.run("go", session_id="s", timeout=1)
            self.assertEqual(h.run("go", session_id="s", timeout=30).final_response, "y")

    def test_death_in_a_run(self) -> None:
        server = self.model(lambda body: ["x", threading.Event()])
        with self.harness(server) as h:
            with self.assertRaises(ProcessDied) as caught:
                for item in h.stream("go"):
                    if isinstance(item, Delta):
                        os.kill(h.pid, signal.SIGKILL)
            self.assertEqual(caught.exception.returncode, -signal.SIGKILL)
            with self.assertRaises(ProcessDied):
                h.run("again")

    def test_last_words(self) -> None:
        fake = self.fake("import sys\nsys.stderr.write('out of luck')\nsys.exit(3)\n")
        with self.assertRaisesRegex(ProcessDied, "out of luck") as caught:
            Harness(binary=fake, home=self.home).start()
        self.assertEqual(caught.exception.returncode, 3)

    def test_missing_receipt(self) -> None:
        fake = self.fake("import sys\nsys.stdin.read()\n")
        with self.assertRaises(ReceiptTimeout):
            Harness(binary=fake, home=self.home, receipt_timeout=0.5).start()

    def test_a_process_that_does_not_read(self) -> None:
        fake = self.fake(GREETING + "time.sleep(600)\n")
        long = "x" * (1 << 20)  # more than a pipe holds

        async def main() -> None:
            h = AsyncHarness(binary=fake, home=self.home)
            await h.start()
            with self.assertRaises(RunTimeout):
                await h.run(long, timeout=0.3)
            os.kill(h.pid, signal.SIGKILL)
            await h.close()

        asyncio.run(asyncio.wait_for(main(), 60))
        h = Harness(binary=fake, home=self.home, receipt_timeout=0.5)
        h.start()
        with self.assertRaises(RunTimeout):
            h.run(long, timeout=0.3)
        with self.assertRaises(ReceiptTimeout):
            h.run("x")
        with self.assertRaises(ReceiptTimeout):
            h.cancel("s")
        assert h._process is not None
        self.assertIsNotNone(h._process.close(patience=1))

    def test_leaving_before_the_receipt_cancels(self) -> None:
        seen = self.home.parent / "seen"
        fake = self.fake(GREETING + (
            f"out = open({str(seen)!r}, 'a')\nwhile True:\n    r = take()\n    print(r['method'], file=out, flush=True)\n"
            "    if r['method'] != 'session/prompt': give({'id': r['id'], 'result': {}})\n"
        ))
        with Harness(binary=fake, home=self.home, receipt_timeout=0.5) as h:
            with self.assertRaises(ReceiptTimeout):
                h.run("x")

        async def main() -> None:
            async with AsyncHarness(binary=fake, home=self.home) as h:
                task = asyncio.create_task(h.run("x"))
                while seen.read_text().count("session/prompt") < 2:
                    await asyncio.sleep(0.01)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

        asyncio.run(main())
        self.assertEqual(seen.read_text().split(), ["session/prompt", "session/cancel", "shutdown"] * 2)

    def test_what_cannot_be_sent(self) -> None:
        server = self.model(lambda body: ["x"])
        with self.assertRaises(ValueError):
            self.harness(server, max_tokens=float("nan")).start()
        with self.harness(server) as h:
            bad: list[Any] = ["\udcff", [{"type": "text", "text": b"x"}]]
            for prompt in bad:
                with self.assertRaises((ValueError, TypeError)):
                    h.run(prompt)
            assert h._process is not None
            self.assertEqual(h._process._pending, {})

    def test_odd_lines(self) -> None:
        fake = self.fake(GREETING + "print('[' * 100000 + ']' * 100000)\nprint('{}')\nprint('no')\ngive({'id': take()['id'], 'result': {'sessions': []}})\n")
        with Harness(binary=fake, home=self.home, receipt_timeout=30) as h:
            self.assertEqual(h.sessions(), [])

    def test_no_binary(self) -> None:
        with self.assertRaises(BinaryNotFound):
            Harness(binary=self.home / "nothing").start()

    def test_a_full_stderr_blocks_nobody(self) -> None:
        fake = self.fake(
            "import sys, json\nsys.stderr.write('x' * 1000000 + 'END')\nsys.stderr.flush()\n"
            "for line in sys.stdin:\n    r = json.loads(line)\n"
            "    print(json.dumps({'id': r['id'], 'result': {'serverInfo': {'name': 'fake'}}}), flush=True)\n"
        )
        with Harness(binary=fake, home=self.home) as h:
            self.assertEqual(h.server_info, {"name": "fake"})


class Environment(unittest.TestCase):
    def config(self, **more: Any) -> Config:
        return Config(**{
            "provider": "p", "model": "m", "max_tokens": None, "reasoning_effort": None, "cwd": None, "home": None, "system_prompt": None, "env": None, "deltas": False, **more,
        })

    def test_what_counts(self) -> None:
        with unittest.mock.patch.dict(os.environ, {"DSH_HOME": "/outer", "DSH_SESSION_ROOT": "/sessions", "DSH_CWD": "/usr"}):
            c = self.config()
            self.assertEqual((c.env["DSH_HOME"], c.env["DSH_SESSION_ROOT"], c.params["cwd"]), ("/outer", "/sessions", "/usr"))
            c = self.config(home="/mine", env={"DSH_CWD": "/tmp"})
            self.assertEqual((c.env["DSH_HOME"], c.env.get("DSH_SESSION_ROOT"), c.params["cwd"]), ("/mine", None, "/tmp"))
            c = self.config(home="/mine", env={"DSH_SESSION_ROOT": "/there"}, cwd="/")
            self.assertEqual((c.env["DSH_HOME"], c.env["DSH_SESSION_ROOT"], c.params["cwd"]), ("/mine", "/there", "/"))


class Many(Case):
    def test_64_harnesses(self) -> None:
        count = int(os.environ.get("DSH_TEST_HARNESSES", "64"))

        def script(body: dict) -> list:
            n = results(body)
            return [("call", "bash", {"command": "X=$((X+1)); echo x=$X"})] if n < 2 else ["done"]

        server = self.model(script)
        pids: list[int] = []

        def one(i: int) -> str:
            with self.harness(server) as h:
                pids.append(h.pid)
                r = h.run("go", timeout=300)
                outputs = [e.data for e in r.events if e.type == "tool/result"]
                self.assertIn("x=1", json.dumps(outputs[0]))
                self.assertIn("x=2", json.dumps(outputs[1]))
                return r.finish_reason

        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            self.assertEqual(list(pool.map(one, range(count))), ["completed"] * count)
        for pid in pids:
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)


class Example(Case):
    def test_minimal(self) -> None:
        server = self.model(lambda body: [("call", "bash", {"command": "touch made; echo $((6*7))"})] if results(body) == 0 else ["done"])
        env = {**os.environ, "DSH_HOME": str(self.home), "DSH_MODEL": "from-the-environment", "DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "key-for-tests"}
        command = [sys.executable, str(HERE.parent / "examples" / "minimal.py"), "--workspace", str(self.ws), "--session-id", "one", "make it"]
        p = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn("done", p.stdout)
        self.assertIn("[bash]", p.stdout)
        self.assertIn("\n42\n", p.stdout)
        self.assertTrue((self.ws / "made").exists())
        self.assertEqual(server.requests[0]["model"], "from-the-environment")
        del env["DSH_MODEL"]
        subprocess.run(command, env=env, capture_output=True, timeout=120, check=True)
        self.assertEqual(server.requests[-1]["model"], "deepseek-v4-flash")
        self.assertIn("make it", json.dumps(server.requests[-1]["messages"][1]))

    def test_the_whole_answer(self) -> None:
        words = [f"word{i} " for i in range(500)]
        server = self.model(lambda body: words)
        env = {**os.environ, "DSH_HOME": str(self.home), "DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "key-for-tests"}
        command = [sys.executable, str(HERE.parent / "examples" / "minimal.py"), "--workspace", str(self.ws), "--session-id", "one", "talk"]
        p = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        self.assertEqual(p.stdout, "".join(words) + "\n-- completed (session one)\n")

    def test_interrupt(self) -> None:
        server = self.model(lambda body: ["half", threading.Event()])
        env = {**os.environ, "DSH_HOME": str(self.home), "DEEPSEEK_BASE_URL": server.url, "DEEPSEEK_API_KEY": "key-for-tests"}
        command = [sys.executable, str(HERE.parent / "examples" / "minimal.py"), "--workspace", str(self.ws), "--session-id", "one", "make it"]
        p = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert p.stdout is not None
        self.assertEqual(p.stdout.read(4), "half")
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertEqual((out, err, p.returncode), ("\n-- interrupted (session one)\n", "", 130))


if __name__ == "__main__":
    unittest.main()
