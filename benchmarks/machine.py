"""What a saved result must say about where it was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from benchmarks.servers import Kind, binary

PACKAGES = ("stagebell", "autogen-core", "autogen-ext", "grpcio", "pydantic", "redis", "hiredis")


def describe() -> dict[str, object]:
    """Date, processors, Python, packages and servers of this machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: _version(name) for name in PACKAGES},
        "servers": {"redis": _server_version("redis"), "valkey": _server_version("valkey")},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _server_version(kind: Kind) -> str | None:
    program = binary(kind)
    if program is None:
        return None
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return next((word[2:] for word in text.split() if word.startswith("v=")), text.strip())
