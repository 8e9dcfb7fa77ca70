"""Serves every agent of this folder, and the tool, at the paths of their names: python3 serve.py 8650"""

import sys

import weir
from anthropic_sdk import anthropic_messages
from boxes import look
from langgraph_agent import langgraph_agent
from openai_agents import openai_agents
from openai_sdk import openai_chat, openai_responses
from pydantic_ai_agent import pydantic_ai_agent
from smolagents_agent import smolagents_agent


@weir.tool
def final_answer(answer: str) -> weir.Observation:
    """Provides a final answer to the given problem."""
    return weir.Observation(answer, done=True)


if __name__ == "__main__":
    agents = openai_chat, openai_responses, anthropic_messages, openai_agents, langgraph_agent, pydantic_ai_agent, smolagents_agent
    weir.serve(*agents, weir.tool(look), final_answer, port=int(sys.argv[1]))
