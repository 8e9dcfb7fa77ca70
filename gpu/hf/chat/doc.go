// Package chat turns conversations into the token ids that a published model was trained on, and sampled ids back into messages
// and tool calls:
//
//	c, err := chat.Open("Qwen2.5-0.5B-Instruct", codec)
//	ids, err := c.Prompt([]chat.Message{{Role: chat.User, Content: "Where is it?"}}, tools)
//
// The words of users and tools never become control tokens, whatever they spell.
//
// A conversation goes on without being rendered anew: [Conversation.Next] gives the ids that follow the engine's ids, among
// which the sampled ids stay as they were sampled. It also renders the whole, to check that a model served by another program
// would meet the same text. Where the template writes earlier turns in another way, such as without their thoughts, the two
// differ, and the ids are a new context.
//
// A model folder has its template in chat_template.jinja or in tokenizer_config.json. It is tried on a conversation when it is
// opened: anything that it cannot do is an error then, and not in the middle of a run.
package chat
