"""Questions: functions that list the questions of a task of type http."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any


class Questions:
    """A function that lists questions, each an object as in a line of a jsonl task: question and answers are required."""

    def __init__(self, function: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self) -> Iterable[Mapping[str, Any]]:
        return self.function()

    def describe(self) -> dict[str, Any]:
        """All questions, as one page."""
        return {"questions": [dict(row) for row in self.function()]}

    def respond(self, request: dict[str, Any]) -> dict[str, Any]:
        """Nothing posts to questions."""
        raise TypeError("questions are read by GET")


def questions(function: Callable[[], Iterable[Mapping[str, Any]]]) -> Questions:
    """Makes a page of questions of a function that lists them."""
    return Questions(function)
