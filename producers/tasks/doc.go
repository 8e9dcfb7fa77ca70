// Package tasks holds the tasks that agents are trained on: the passages that a search tool finds, and questions with their accepted
// answers in three splits.
//
// A [Dataset] is read from JSONL files (see [LoadCorpus] and [LoadQuestions]) or made by a package below this package; tasks/library and
// tasks/countries are built in. [Prompts] turns a split into an endless, deterministic order of prompts in which every source of question
// is as frequent as any other.
package tasks
