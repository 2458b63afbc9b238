"""Every test belongs to one of the four layers, and the first two reach nothing outside the process."""

import socket

import pytest

from tests.house.no_network import NetworkUsed

LAYERS = ("unit", "runtime", "integration", "evaluation")
NOWHERE = ("192.0.2.1", 9)  # an address reserved for documentation


@pytest.fixture(autouse=True)
def guarded(request: pytest.FixtureRequest) -> None:
    # Without the guard these tests would do what they are about.
    assert request.config.pluginmanager.has_plugin("tests.house.no_network")


@pytest.mark.unit
def test_every_test_has_one_layer(request: pytest.FixtureRequest) -> None:
    strays = {
        item.nodeid.partition("[")[0]
        for item in request.session.items
        if len({mark.name for mark in item.iter_markers() if mark.name in LAYERS}) != 1
    }
    assert not strays


@pytest.mark.unit
@pytest.mark.parametrize("address", [NOWHERE, ("127.0.0.1", 9)])
def test_a_unit_test_connects_to_nothing(address: tuple[str, int]) -> None:
    with socket.socket() as connection, pytest.raises(NetworkUsed, match="unit test"):
        connection.connect(address)


@pytest.mark.integration
def test_no_test_leaves_the_machine() -> None:
    with socket.socket() as connection, pytest.raises(NetworkUsed, match="not on this machine"):
        connection.connect(NOWHERE)
