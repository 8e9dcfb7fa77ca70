// Package selfplay is a task of documents instead of questions, for the agent of type selfplay: the policy writes its own questions.
//
// The documents are the documents of the task countries: the facts of a country, or of a region, its country and that country's neighbour,
// and a value of the last of them that is to be asked for:
//
//	abia is a region of nigeria . nigeria has capital abuja , … , neighbour niger . niger has capital niamey , … . ask for niamey .
//
// "what is the capital of niger ?" is a question with this answer, found by a single search; "what is the capital of the neighbour of the
// country of abia ?" takes three. The held-out questions are the questions of the task countries, about countries that no training document
// names.
package selfplay
