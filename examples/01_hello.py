"""One agent, one call, one reply."""

import asyncio
from dataclasses import dataclass

from autogen_core import AgentId, MessageContext, RoutedAgent, rpc

from stagebell import LocalRuntime


@dataclass
class Hello:
    name: str


@dataclass
class Greeting:
    text: str


class Greeter(RoutedAgent):
    def __init__(self) -> None:
        super().__init__("Greets whoever says hello.")
        self.guests = 0

    @rpc
    async def on_hello(self, message: Hello, ctx: MessageContext) -> Greeting:
        self.guests += 1
        return Greeting(f"Hello {message.name}, you are guest number {self.guests}.")


async def main() -> None:
    async with LocalRuntime() as runtime:
        await Greeter.register(runtime, "greeter", Greeter)
        for name in ("Ada", "Grace"):
            reply = await runtime.send_message(Hello(name), AgentId("greeter", "hall"))
            print(reply.text)


if __name__ == "__main__":
    asyncio.run(main())
