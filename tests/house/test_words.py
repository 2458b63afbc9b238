"""What may not stand in the project's files."""

import re
from pathlib import Path

import pytest

from tests.house import sources

pytestmark = pytest.mark.unit

# A path of one machine is noise, or a defect, on every other.
FOLDERS_OF_ONE_MACHINE = re.compile(r"(?<![\w./~$}-])/(?:home|Users|root|work|opt)/[A-Za-z0-9_.]")
# A sentence has to stand without a tracker beside it.
TRACKER_NUMBERS = re.compile(r"\bR\d{3}\b|\bissues?\s+#?\d+\b|\B#\d+\b(?!;)|\bTODO\b|\bFIXME\b|\bXXX\b")
# Packages come from whatever index the user's tools are set to.
REGISTRY_HOSTS = re.compile(r"(?:pypi|pythonhosted|npmjs|registry)\.(?:org|com|io)\b|\bdeb\.debian\b")

HERE = Path(__file__).resolve()


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found: list[str] = []
    for path in sources.project_files():
        if path == HERE:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                found.append(f"{sources.relative(path)}:{number}: {line.strip()[:100]}")
    return found


@pytest.mark.parametrize("pattern", [FOLDERS_OF_ONE_MACHINE, TRACKER_NUMBERS, REGISTRY_HOSTS])
def test_no_file_holds(pattern: re.Pattern[str]) -> None:
    assert not lines_with(pattern)


def test_no_file_names_the_checkout_or_the_home_folder() -> None:
    places = [str(place) for place in (sources.ROOT, Path.home()) if len(place.parts) > 1]
    assert not lines_with(re.compile("|".join(rf"{re.escape(place)}(?![\w-])" for place in places)))


def test_nothing_silences_a_type_checker() -> None:
    """But tests/typing, where wrong types stand on purpose; the other tests are read by no checker."""
    silenced = re.compile(r"#\s*(?:type:\s*ignore|pyright:|mypy:)")
    on_purpose = {*(sources.ROOT / "tests" / "typing").iterdir(), HERE, HERE.with_name("test_typing_fixtures.py")}
    found = [
        f"{sources.relative(path)}:{number}"
        for path in sources.programs()
        if path not in on_purpose
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if silenced.search(line)
    ]
    assert not found
