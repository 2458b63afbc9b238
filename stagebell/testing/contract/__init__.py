"""The contract: what every runtime of ours does, as a pytest class for whoever writes another one.

    import pytest
    from stagebell.testing.contract import Capabilities, RuntimeContract

    @pytest.mark.asyncio
    class TestMyRuntime(RuntimeContract):
        capabilities = Capabilities(context_variables=False)  # what it cannot do is left out

        def make_runtime(self):  # not started; may be a coroutine function
            return MyRuntime()

It needs pytest and pytest-asyncio in your project, and nothing of them here. A runtime is AutoGen's `AgentRuntime` with
`start`, `stop`, `stop_when_idle` and `close`; its errors are those of `stagebell.errors`. Each case gets a runtime of
its own, which must know nothing of those before.
"""

from __future__ import annotations

import sys

if "pytest" in sys.modules:  # so that a failed assert says what was compared
    sys.modules["pytest"].register_assert_rewrite(
        *(f"{__name__}.{room}" for room in ("calls", "publishes", "cancellation", "failures", "states", "stores"))
    )

from stagebell.testing.contract.calls import Calls
from stagebell.testing.contract.cancellation import Cancellation
from stagebell.testing.contract.case import Capabilities
from stagebell.testing.contract.failures import Failures
from stagebell.testing.contract.publishes import Publishes
from stagebell.testing.contract.states import States
from stagebell.testing.contract.stores import RunStoreContract

__all__ = ["Capabilities", "RunStoreContract", "RuntimeContract"]


class RuntimeContract(Calls, Publishes, Cancellation, Failures, States):
    """Calls, publishes, order, one turn at a time, re-entrancy, errors, cancellation, state and stop.

    Override `make_runtime`, and declare in `capabilities` what your runtime cannot do.
    """
