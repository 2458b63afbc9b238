"""What the peer run consists of: versions, files, how many tests must pass, and the exceptions.

Everything that may need a change when AutoGen or a runtime changes stands here and nowhere else.
"""

from dataclasses import dataclass, field

VERSION = "0.7.5"

# What AutoGen's test files import beside the project's own dependencies.
REQUIREMENTS = (
    f"autogen-core=={VERSION}",
    f"autogen-agentchat=={VERSION}",
    f"autogen-ext[openai]=={VERSION}",
    "openai<2",
    "mcp>=1.20,<2",
    "aiofiles",
    "opentelemetry-sdk",
    "pillow",
    "pytest>=8.3",
    "pytest-asyncio",
    "pytest-mock",
    "pytest-timeout",
    "tiktoken",
)


@dataclass(frozen=True)
class Suite:
    """The test files of one of AutoGen's packages that run agents, and the number of tests they hold."""

    name: str
    archive: str
    files: tuple[str, ...]
    tests: int


@dataclass(frozen=True)
class Runtime:
    """A class that stands in for AutoGen's, as `module:Class`, and the tests it cannot be asked to pass."""

    name: str
    replacement: str | None
    needs_server: bool = False
    # "file.py::test" -> reason, per suite.
    exceptions: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def expected(self, suite: Suite) -> int:
        return suite.tests - len(self.exceptions.get(suite.name, {}))


SUITES = (
    Suite(
        "core",
        "autogen-core",
        (
            "test_base_agent.py",
            "test_cancellation.py",
            "test_closure_agent.py",
            "test_intervention.py",
            "test_routed_agent.py",
            "test_runtime.py",
            "test_serialization.py",
            "test_state.py",
            "test_subscription.py",
            "test_tool_agent.py",
            "test_types.py",
        ),
        tests=55,
    ),
    Suite(
        "agentchat",
        "autogen-agentchat",
        (
            "test_agent.py",
            "test_group_chat.py",
            "test_group_chat_graph.py",
            "test_group_chat_nested.py",
            "test_group_chat_pause_resume.py",
            "test_magentic_one_group_chat.py",
            "test_sequential_routed_agent.py",
            "test_society_of_mind_agent.py",
            "test_streaming_message_id_correlation.py",
            "test_task_runner_tool.py",
            "test_userproxy_agent.py",
        ),
        tests=233,
    ),
)

_SINGLE_STEPS = (
    "steps through the queue with `_process_next()`, a private method of AutoGen's class, "
    "on a runtime that was never started"
)
PRIVATE_MEMBERS = {
    "core": {
        "test_cancellation.py::test_cancellation_with_token": _SINGLE_STEPS,
        "test_cancellation.py::test_nested_cancellation_only_outer_called": _SINGLE_STEPS,
        "test_cancellation.py::test_nested_cancellation_inner_called": _SINGLE_STEPS,
    }
}

RUNTIMES = (
    Runtime("local", "stagebell:LocalRuntime", exceptions=PRIVATE_MEMBERS),
    Runtime(
        "redis",
        "tests.support.peer_adapter:PeerRedisRuntime",
        needs_server=True,
        exceptions=PRIVATE_MEMBERS,
    ),
    Runtime("reference", None),
)
