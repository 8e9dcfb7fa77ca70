"""Pydantic AI, with a tool, unchanged but for the provider's base URL."""

import pydantic_ai
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import weir
from boxes import look, score


@weir.agent
def pydantic_ai_agent(e: weir.Episode) -> str:
    """Runs an agent until it answers."""
    model = OpenAIChatModel("policy", provider=OpenAIProvider(base_url=e.base_url, api_key=e.api_key))
    agent = pydantic_ai.Agent(model, tools=[look])
    try:
        said = agent.run_sync(e.prompt, usage_limits=pydantic_ai.UsageLimits(request_limit=3)).output
    except (pydantic_ai.UsageLimitExceeded, pydantic_ai.UnexpectedModelBehavior):
        said = ""
    return score(e, said)
