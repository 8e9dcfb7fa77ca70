// Package atlas is a task that is solved in a single cell of code where an agent that searches needs several turns. It asks about the real
// countries of tasks/countries, divided in the same way:
//
//	the code of sweden times the code of peru ?
//	the code of the neighbour of sweden times the code of peru ?
//	the code of the neighbour of sweden times the code of the neighbour of peru ?
//	the capital of the neighbour of sweden ?
//
// Cells have find(name), which returns a record with capital, code and neighbour, and an episode has two turns:
//
//	submit ( find ( find ( " sweden " ) . neighbour ) . code * find ( " peru " ) . code )
//
// No code and no product is a word, so that none can be copied or guessed. Most demonstrations look up a country in each cell and submit in
// a last cell, which takes more turns than there are; a few are composed as above. That composing pays is for the rewards to teach. The
// demonstrations are in made-up worlds: no fact can be remembered from them.
package atlas
