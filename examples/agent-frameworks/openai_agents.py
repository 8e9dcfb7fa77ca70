"""The OpenAI Agents SDK, with a tool, unchanged but for the client's base URL. It asks by responses, its default."""

import asyncio

import agents
import openai

import weir
from boxes import look, score

agents.set_tracing_disabled(True)  # traces go to OpenAI


@weir.agent
def openai_agents(e: weir.Episode) -> str:
    """Runs an agent until it answers."""
    client = openai.AsyncOpenAI(base_url=e.base_url, api_key=e.api_key, max_retries=0)
    model = agents.OpenAIResponsesModel(model="policy", openai_client=client)
    agent = agents.Agent(name="finder", model=model, tools=[agents.function_tool(look)])
    try:
        said = str(asyncio.run(agents.Runner.run(agent, e.prompt, max_turns=3)).final_output)
    except agents.MaxTurnsExceeded:
        said = ""
    return score(e, said)
