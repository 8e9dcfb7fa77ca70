// Package team is an agent of which the policy is a planner and its workers. The planner reads the question; it gives workers tasks of its
// own wording by a call, and answers from their answers. Each task is answered by a worker: the same policy in a context of its own, which
// is shown the task alone, with its own system message, tools and limits.
//
//	planner    question -> delegate(task 1) -> answer 1 -> delegate(task 2) -> answer 2 -> answer
//	worker-1               task 1 -> search -> ... -> answer 1
//	worker-2                                     task 2 -> search -> ... -> answer 2
//
// All contexts are of the same trajectory, in the order in which they began, by the names [PlannerName] and [WorkerName]. The limits of the
// episode count them all: tool calls, delegations among them, tokens, segments and time.
//
// A delegation is a call of the planner's turn: it is recorded there, and the worker's answer is sanitized as any tool's words. A worker
// that gives no answer is told of in words, and the planner goes on. A failure of the machinery under a worker, such as the engine, fails
// the episode as it does elsewhere.
package team
