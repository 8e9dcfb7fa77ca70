// Package chat is the agent of a published model: it speaks the model's own chat template, and the model calls tools in the format
// that it was trained on.
//
// Which format that is the template tells; Config.Format names another: tags, or fences of code, whose results stand in the same turn.
//
// An episode is a conversation: the question is the user's message, each turn of the policy either calls tools, whose results are the next
// messages, or is the answer. The context is never written anew where the template allows it: sampled tokens stay as they were sampled, and
// the tools' words are appended, as text that holds no control token (package gpu/hf/chat).
package chat
