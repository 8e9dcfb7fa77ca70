// Package notebook is the agent that thinks, writes code and observes, as L0's does (https://arxiv.org/abs/2506.23667): each turn of the
// policy holds a cell, which a tool runs in a session of the episode's own; the cell's output comes back, and submit(answer) in a cell ends
// the episode. The cells' notepad keeps notes: when the context is full it is trimmed to the task, the notepad and the last turns, and the
// episode goes on in a new segment.
//
// A vocabulary of words writes cells between tags that are a token each; a model with a chat template writes them in code fences or tags of
// its text, and is shown outputs in messages.
package notebook
