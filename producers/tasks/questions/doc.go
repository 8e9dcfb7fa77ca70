// Package questions holds the tasks whose questions somebody else brings and that have nothing beside them: type jsonl reads
// them from a file, type http asks a service for them, page by page. The agent, the tools and the reward are named in the
// configuration.
//
//	tasks:
//	  arithmetic:
//	    type: jsonl
//	    questions: sums.jsonl
//	    tools: [calculator]
//	    reward: {type: http, url: http://127.0.0.1:8900/score}
//
// A question is the same in both: see [tasks.ReadQuestions]. docs/extending.md has the pages' JSON schema.
package questions
