#!/usr/bin/env python3
"""Write a wheel of dsh_sdk that carries a dsh binary. Standard library only.

    build_wheel.py --binary PATH [--out DIR] [--platform TAG]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STAMP = (2020, 1, 1, 0, 0, 0)  # the same input gives the same wheel


def build(binary: Path, out: Path, platform: str) -> Path:
    match = re.search(r'^version = "([^"]+)"', (HERE / "pyproject.toml").read_text(), re.M)
    if match is None:
        raise SystemExit("pyproject.toml names no version")
    version = match.group(1)
    info = f"dsh_sdk-{version}.dist-info"
    files: list[tuple[str, bytes, int]] = []
    for path in sorted((HERE / "dsh_sdk").rglob("*")):
        name = path.relative_to(HERE)
        if path.is_file() and (path.suffix == ".py" or path.name == "py.typed"):
            files.append((name.as_posix(), path.read_bytes(), 0o644))
    ending = ".exe" if platform.startswith("win") else ""
    files.append((f"dsh_sdk/bin/dsh{ending}", binary.read_bytes(), 0o755))
    files.append((f"{info}/METADATA", (
        f"Metadata-Version: 2.1\nName: dsh-sdk\nVersion: {version}\nSummary: Drive the dsh coding agent from Python\n"
        "Requires-Python: >=3.10\nDescription-Content-Type: text/markdown\n\n" + (HERE / "README.md").read_text()
    ).encode(), 0o644))
    files.append((f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: build_wheel\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n".encode(), 0o644))
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n" for name, data, _ in files
    )
    files.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode(), 0o644))
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"dsh_sdk-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data, mode in files:
            entry = zipfile.ZipInfo(name, STAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            z.writestr(entry, data)
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a wheel of dsh_sdk that carries a dsh binary.")
    parser.add_argument("--binary", required=True, type=Path)
    parser.add_argument("--out", default=HERE / "dist", type=Path)
    parser.add_argument("--platform", default=re.sub(r"[-.]", "_", sysconfig.get_platform()))
    args = parser.parse_args()
    print(build(args.binary, args.out, args.platform))
    return 0


if __name__ == "__main__":
    sys.exit(main())
