// Package tools holds the tools that agents call, and wrappers of any tool: injected latency, a time limit, a bound on its arguments.
package tools
