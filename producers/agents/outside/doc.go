// Package outside has the agents that are programs of the user's, in any language: they ask the policy through the gateway, as they ask
// any model, and know nothing of Weir.
//
//	agents:
//	  mine: {type: command, run: [python3, agent.py], dir: .}      # started for each episode, in a sandbox
//	  mine: {type: http, service: {url: "http://localhost:8000"}}  # called for each episode
//	  mine: {type: external, key_env: AGENT_KEY}                   # comes for episodes by itself
package outside
