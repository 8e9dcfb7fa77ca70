"""Tools: functions that an agent calls, for tools of type http."""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, overload

from weir.schema import fits, parameters_of
from weir.service import Refused

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Call:
    """Which call it is. A parameter of this type is given to a tool beside the agent's arguments."""

    run: str
    episode: str
    #: From 0 in each episode.
    index: int
    #: The episode's, 0 to 2^64-1: a tool that draws numbers draws them from seed and index.
    seed: int
    #: The same for every attempt at this call, and for no other call.
    key: str


@dataclass(frozen=True)
class Observation:
    """What a tool answers: the text for the agent, a process reward for the turn, and whether the episode ends."""

    text: str
    reward: float | None = None
    done: bool = False


class Tool(Generic[P, R]):
    """A function that an agent calls. Called from Python it is the function."""

    def __init__(self, function: Callable[P, R], name: str = "", free_text: bool = False) -> None:
        self.function = function
        self.name = name or function.__name__
        self.__doc__ = function.__doc__
        self.description = inspect.getdoc(function) or ""
        schema, self._call = parameters_of(function, Call)
        self._arguments = list(schema["properties"])
        if free_text and len(self._arguments) != 1:
            raise TypeError(f"{self.name}: {len(self._arguments)} arguments: a tool of free text has one")
        self.parameters = None if free_text else schema

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def describe(self) -> dict[str, Any]:
        """The tool's name, description and parameters."""
        told: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.parameters is not None:
            told["parameters"] = self.parameters
        return told

    def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        """Calls the function with the agent's arguments."""
        given = request["arguments"]
        arguments: dict[str, Any] = dict(given) if self.parameters is not None else {self._arguments[0]: given}
        unknown = [name for name in arguments if name not in self._arguments]
        if unknown:
            raise Refused(f"unknown argument: {', '.join(unknown)}")
        if self.parameters is not None:
            self._check(arguments, self.parameters)
        if self._call:
            arguments[self._call] = Call(request["run"], request["episode"], request["call"], request["seed"], request["key"])
        return _observe(self.function(**arguments))  # type: ignore[call-arg]

    def _check(self, arguments: dict[str, Any], schema: dict[str, Any]) -> None:
        """Refuses arguments that the function does not take: an error of the function would look like a failure of the service."""
        missing = [name for name in schema["required"] if name not in arguments]
        if missing:
            raise Refused(f"missing argument: {', '.join(missing)}")
        for name, value in arguments.items():
            if not fits(value, schema["properties"][name]):
                raise Refused(f"{name}: want {json.dumps(schema['properties'][name])}")


def _observe(result: Any) -> dict[str, Any]:
    """The body of an observation; what is no text is written as JSON."""
    if not isinstance(result, Observation):
        result = Observation(result if isinstance(result, str) else json.dumps(result))
    body: dict[str, Any] = {"text": result.text}
    if result.reward is not None:
        body["reward"] = result.reward
    if result.done:
        body["done"] = True
    return body


@overload
def tool(function: Callable[P, R]) -> Tool[P, R]: ...


@overload
def tool(*, name: str = "", free_text: bool = False) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[P, R] | None = None, *, name: str = "", free_text: bool = False) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Makes a tool of a function: its docstring describes it, its annotations are the schema of its arguments. With free_text its one argument is what the agent wrote."""
    if function is not None:
        return Tool(function)
    return lambda function: Tool(function, name, free_text)
