"""The place where the peer run works: AutoGen's archives, unpacked, and an environment of its own."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path

from tests.peer.plan import REQUIREMENTS, SUITES, VERSION, Suite

CHECKOUT = Path(__file__).resolve().parents[2]


def home() -> Path:
    """PEER_HOME, or a folder in the user's cache; it may be shared by many checkouts."""
    return Path(os.environ.get("PEER_HOME") or Path.home() / ".cache" / "stagebell-peer").resolve()


def unpacked(suite: Suite) -> Path:
    """The folder of the suite's source archive, as published."""
    return home() / f"{suite.archive.replace('-', '_')}-{VERSION}"


def prepare() -> Path:
    """Make what is missing and return the environment's Python."""
    home().mkdir(parents=True, exist_ok=True)
    python = _environment()
    for suite in SUITES:
        if not unpacked(suite).is_dir():
            _download(python, suite)
    return python


def _requirements() -> list[str]:
    # The project's own dependencies, not the project: the checkout is put on the path, so that one
    # environment serves every checkout and is never left pointing into a folder that is gone.
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return sorted({*project["dependencies"], *REQUIREMENTS})


def _environment() -> Path:
    requirements = _requirements()
    wanted = "\n".join([f"{platform.python_version()} {sys.base_prefix}", *requirements])
    folder = home() / f"venv-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        print(f"peer: making the environment in {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        _run(python, "-m", "pip", "install", "--quiet", *requirements)
        complete.touch()
    return python


def _download(python: Path, suite: Suite) -> None:
    print(f"peer: fetching the source archive of {suite.archive} {VERSION}", flush=True)
    wanted = f"{suite.archive}=={VERSION}"
    _run(python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", home(), wanted)
    with tarfile.open(unpacked(suite).with_name(unpacked(suite).name + ".tar.gz")) as archive:
        archive.extractall(home(), filter="data")


def _run(*command: str | Path) -> None:
    subprocess.run(list(map(str, command)), check=True, stdin=subprocess.DEVNULL)
