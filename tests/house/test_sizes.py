"""Files and functions stay small enough to be read in one go."""

import statistics

import pytest

from tests.house import sources

pytestmark = pytest.mark.unit

FILE_LIMIT = 400
MEDIAN_FILE = 150
FUNCTION_LIMIT = 50
USUAL_FUNCTION = 25
SCRIPT_LIMIT = 100


def test_files_stay_under_the_limit() -> None:
    too_long = {
        sources.relative(path): lines
        for path in sources.programs()
        if (lines := sources.count_lines(path)) >= FILE_LIMIT
    }
    assert not too_long


def test_half_of_the_files_are_short() -> None:
    sizes = [sources.count_lines(path) for path in sources.modules() if path.name != "__init__.py"]
    assert statistics.median(sizes) <= MEDIAN_FILE


def test_functions_stay_under_the_limit() -> None:
    found = [function for path in sources.programs() for function in sources.functions(path)]
    assert not [f"{function.where}: {function.lines}" for function in found if function.lines >= FUNCTION_LIMIT]


def test_nine_functions_in_ten_are_short() -> None:
    found = [function for path in sources.modules() for function in sources.functions(path)]
    longer = [f"{f.where}: {f.lines_of_code}" for f in found if f.lines_of_code > USUAL_FUNCTION]
    assert len(longer) <= len(found) / 10, longer


def test_lua_scripts_stay_under_the_limit() -> None:
    too_long = {
        sources.relative(path): lines
        for path in sources.scripts()
        if (lines := sources.count_lines(path)) >= SCRIPT_LIMIT
    }
    assert not too_long
