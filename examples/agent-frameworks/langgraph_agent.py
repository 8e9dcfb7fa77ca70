"""LangGraph's ReAct agent, with a tool, unchanged but for the model's base URL. The model streams."""

import langchain_openai
import langgraph.errors
import langgraph.prebuilt

import weir
from boxes import look, score


@weir.agent
def langgraph_agent(e: weir.Episode) -> str:
    """Runs the graph until the model answers."""
    model = langchain_openai.ChatOpenAI(model="policy", base_url=e.base_url, api_key=e.api_key, streaming=True, max_retries=0)
    graph = langgraph.prebuilt.create_react_agent(model, [look])
    try:
        end = graph.invoke({"messages": [("user", e.prompt)]}, {"recursion_limit": 7})
    except langgraph.errors.GraphRecursionError:
        return score(e, "")
    return score(e, end["messages"][-1].content)
