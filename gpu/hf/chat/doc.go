// Package chat turns conversations into the token ids that a published model was trained on, and what the model samples back into
// messages and tool calls:
//
//	c, err := chat.Open("Qwen2.5-0.5B-Instruct", codec)
//	ids, err := c.Prompt([]chat.Message{{Role: chat.User, Content: "Where is it?"}}, tools)
//
// The words of users and tools never become control tokens, whatever they spell.
//
// A conversation goes on without being rendered anew: [Conversation.Next] gives the ids that follow those which the engine has, the
// sampled ones among them as they were sampled. It renders the whole beside that, to see that a model which is asked by others meets the
// same text. Where the template writes earlier turns in another way, such as without their thoughts, the two differ, and the ids are a
// new context.
//
// A model folder has its template in chat_template.jinja or in tokenizer_config.json. It is tried on a conversation when it is opened:
// what it cannot do is an error then, and not in the middle of a run.
package chat
