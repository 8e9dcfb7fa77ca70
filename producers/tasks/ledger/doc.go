// Package ledger is a task for an agent with a notebook whose context is trimmed, L0 in miniature. A ledger has pages of entries; a rule
// says which colour counts; the answer is the sum of n times m over that colour's entries:
//
//	rule ( )   count blue .                                            said once
//	turn ( )   page : red 14 at 33 , blue 17 at 23 , ... .             the next page, said once
//	           no more pages .
//	row ( blue )                                                       n times m of that colour on the page that is open
//
// The context holds a single page. A good episode notes the rule, keeps the sum in a variable, and submits it:
//
//	rule ( )
//	notepad . add_facts ( blue ) ; s = 0 ; turn ( )
//	s = s + row ( blue ) ; turn ( )
//	submit ( s )
//
// An agent that calls tools and writes no code has a call in each cell, and the tool keeps the sum:
//
//	rule ( )
//	notepad . add_facts ( blue )
//	turn ( )
//	count ( blue )                                                     adds n times m of that colour, and returns the sum
//	submit ( )                                                         the newest value
//
// No product or sum is a word: the policy cannot write an answer that it did not compute. Noting the rule is rewarded pages later, in other
// segments; adding and turning in the same cell is shown by a minority of the demonstrations and needed for long ledgers, since the cells
// of an episode are bounded.
package ledger
