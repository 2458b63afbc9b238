"""What users import is there, is documented, and is listed."""

import inspect

import pytest

import stagebell

pytestmark = pytest.mark.unit

MOST = 40


def test_all_names_are_importable() -> None:
    assert [name for name in stagebell.__all__ if not hasattr(stagebell, name)] == []


def test_the_list_is_short_and_without_repeats() -> None:
    assert len(stagebell.__all__) == len(set(stagebell.__all__)) <= MOST


def test_nothing_public_of_ours_is_left_out_of_the_list() -> None:
    ours = {
        name
        for name, value in vars(stagebell).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("stagebell.")
    }
    assert ours <= set(stagebell.__all__)


@pytest.mark.parametrize("name", stagebell.__all__)
def test_public_classes_and_functions_say_what_they_do(name: str) -> None:
    value = getattr(stagebell, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        assert (value.__doc__ or "").strip()


@pytest.mark.parametrize("name", stagebell.__all__)
def test_public_methods_of_classes_say_what_they_do(name: str) -> None:
    value = getattr(stagebell, name)
    if not inspect.isclass(value):
        return
    undocumented = [
        method
        for method, function in vars(value).items()
        if not method.startswith("_") and inspect.isfunction(function) and not inspect.getdoc(getattr(value, method))
    ]
    assert undocumented == []
