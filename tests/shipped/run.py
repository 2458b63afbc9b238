"""Build the wheel, install it where the sources are not, and test what was installed: `make wheel`.

The tests and the typing examples are copied beside the new environment, so that nothing of the checkout can
be imported by chance: what passes here is what a user gets from `pip install stagebell`.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
TEST_TOOLS = ("pytest>=8.3", "pytest-asyncio", "pytest-timeout")
PYTEST_SETTINGS = "[pytest]\nasyncio_mode = auto\ntimeout = 60\naddopts = -ra --strict-markers\n"


def run(where: Path, *command: str | Path) -> None:
    subprocess.run(list(map(str, command)), cwd=where, check=True, stdin=subprocess.DEVNULL)


def build(target: Path) -> Path:
    """Build the source archive, and from it the wheel: that proves the archive complete as well."""
    print("=== building", flush=True)
    run(CHECKOUT, sys.executable, "-m", "build", "--outdir", target, CHECKOUT)
    (wheel,) = target.glob("*.whl")
    return wheel


def install(wheel: Path, environment: Path) -> Path:
    """Install the wheel into an environment of its own; return that environment's Python."""
    print(f"=== installing {wheel.name} in a fresh environment", flush=True)
    run(environment.parent, sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    run(environment.parent, python, "-m", "pip", "install", "-qq", wheel, *TEST_TOOLS)
    return python


def test(python: Path, folder: Path, arguments: Sequence[str]) -> None:
    """Run tests/shipped there, and mypy over tests/typing against the installed package."""
    shutil.copytree(CHECKOUT / "tests" / "shipped", folder / "shipped")
    shutil.copytree(CHECKOUT / "tests" / "typing", folder / "typing_examples")
    (folder / "pytest.ini").write_text(PYTEST_SETTINGS)
    print("=== testing", flush=True)
    pytest = ("-P", "-m", "pytest", "-q", "-c", "pytest.ini", "-p", "no:cacheprovider")
    run(folder, python, *pytest, "shipped", *arguments)
    print("=== types as a user's mypy sees them", flush=True)
    mypy = ("-m", "mypy", "--strict", "--cache-dir", folder / "cache", "--python-executable", python)
    run(folder, sys.executable, *mypy, *sorted((folder / "typing_examples").glob("*.py")))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sb-wheel-") as name:
        folder = Path(name)
        try:
            wheel = build(folder / "dist")
            test(install(wheel, folder / "venv"), folder, sys.argv[1:])
        except subprocess.CalledProcessError as failure:
            print(f"failed with status {failure.returncode}: {' '.join(failure.cmd[:6])} …")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
