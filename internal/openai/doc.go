// Package openai has the parts that the servers of the OpenAI API share: its messages, its refusals, and its streams of events. Which
// requests a server takes is its own.
package openai
