"""What is due where a message is addressed, said in words when something else is given; asked only then."""

from __future__ import annotations

from autogen_core import AgentId, AgentType, Subscription, TopicId

from stagebell.errors import WrongType


def require_agent(given: object, what: str = "the recipient") -> None:
    """See that this is the id of an agent.

    Raises:
        WrongType: it is not.
    """
    if isinstance(given, AgentId):
        return
    if isinstance(given, TopicId):
        raise WrongType(f"{what} must be an AgentId, not the topic {given}: publish to a topic with publish_message")
    raise WrongType(f"{what} must be an AgentId, not {_shown(given)}: {_as_call('AgentId', given, 'an agent')}")


def require_topic(given: object) -> None:
    """See that this is the id of a topic.

    Raises:
        WrongType: it is not.
    """
    if isinstance(given, TopicId):
        return
    if isinstance(given, AgentId):
        raise WrongType(f"the topic must be a TopicId, not the agent {given}: send to an agent with send_message")
    raise WrongType(f"the topic must be a TopicId, not {_shown(given)}: {_as_call('TopicId', given, 'a topic')}")


def require_address(given: object) -> None:
    """See that this is the id of an agent or of a topic.

    Raises:
        WrongType: it is neither.
    """
    if not isinstance(given, AgentId | TopicId):
        example = 'AgentId("greeter", "default") or TopicId("orders", "eu")'
        raise WrongType(f"the recipient must be an AgentId or a TopicId, not {_shown(given)}: write {example}")


def require_subscription(given: object) -> None:
    """See that this is a subscription.

    Raises:
        WrongType: it is not.
    """
    if isinstance(given, type) or not isinstance(given, Subscription):
        example = 'TypeSubscription("orders", "greeter")'
        raise WrongType(f"the subscription must be a Subscription, not {_shown(given)}: write {example}")


def require_factory(given: object, agent_type: str) -> None:
    """See that agents can be made with this.

    Raises:
        WrongType: it is an agent, or nothing that can be called.
    """
    if callable(given):
        return
    hint = f"give a function that makes one, such as `lambda: {type(given).__name__}(…)`"
    if hasattr(given, "on_message"):
        hint += "; one agent that exists already is registered with register_agent_instance"
    raise WrongType(
        f"the factory of agent type {agent_type!r} must be a function without arguments, not {_shown(given)}: {hint}"
    )


def _shown(given: object) -> str:
    return f"{given!r:.80} (a {type(given).__name__})"


def _as_call(name: str, given: object, what: str) -> str:
    if isinstance(given, AgentType):
        return f'its key is missing, write {name}("{given.type}", "default")'
    if isinstance(given, str):
        kind, slash, key = given.partition("/")
        return f'write {name}("{kind}", "{key if slash else "default"}")'
    return f'{what} is named by {name}("type", "key")'
