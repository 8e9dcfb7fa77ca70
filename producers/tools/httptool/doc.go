// Package httptool is the tool of type http: a service that somebody runs answers the agent's calls. Each call is a POST with
// a [Request] as JSON; the service answers 200 with an [Answer], or 4xx with {"error": "..."}, which the agent is shown.
// docs/extending.md has both bodies as JSON schemas and a service in Python.
//
//	tools:
//	  calculator:
//	    type: http
//	    url: http://127.0.0.1:8900/calculator
package httptool
