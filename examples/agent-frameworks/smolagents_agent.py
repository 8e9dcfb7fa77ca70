"""smolagents' agent that calls tools, unchanged but for the model's base URL, and for a system prompt that a small model can hold. It wants a call in each turn, also for its answer."""

import smolagents

import weir
from boxes import look, score


# It parses the function's source, which Python 3.11 does not do in several threads at once.
TOOL = smolagents.tool(look)


@weir.agent
def smolagents_agent(e: weir.Episode) -> str:
    """Runs an agent until it answers."""
    model = smolagents.OpenAIModel("policy", api_base=e.base_url, api_key=e.api_key, client_kwargs={"max_retries": 0})
    agent = smolagents.ToolCallingAgent([TOOL], model, max_steps=2, verbosity_level=smolagents.LogLevel.OFF)
    agent.prompt_templates["system_prompt"] = "Look, then answer."
    return score(e, str(agent.run(e.prompt)))
