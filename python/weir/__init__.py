"""The client of Weir: episodes, tools and rewards, runs. README.md has an example of each."""

from weir.agent import Agent, agent, episodes
from weir.binary import find_binary
from weir.episode import Episode, EpisodeOverError, NoEpisodeError, episode
from weir.frame import frame
from weir.questions import Questions, questions
from weir.record import Record
from weir.reward import Prompt, Reward, Rollout, Score, Turn, reward
from weir.run import Run, runs
from weir.service import Refused, Service, serve
from weir.tool import Call, Observation, Tool, tool
from weir.trajectory import Trajectory
from weir.version import version

__version__ = version()

__all__ = [
    "Agent",
    "Call",
    "Episode",
    "EpisodeOverError",
    "NoEpisodeError",
    "Observation",
    "Prompt",
    "Questions",
    "Record",
    "Refused",
    "Reward",
    "Rollout",
    "Run",
    "Score",
    "Service",
    "Tool",
    "Trajectory",
    "Turn",
    "agent",
    "episode",
    "episodes",
    "find_binary",
    "frame",
    "questions",
    "reward",
    "runs",
    "serve",
    "tool",
]
