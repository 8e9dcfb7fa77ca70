// Package library is the built-in task of the demonstration: questions about real countries of 1 to 4 hops, whose facts are spread over
// eight books.
//
// The facts come from github.com/pariz/gountries (see NOTICE). A search names a book and a subject, and finds the book's entry for it:
//
//	gazetteer sweden    sweden has capital stockholm.
//	ledger sweden       sweden has currency sek, east finland.
//	gazetteer abia      abia is a region of nigeria.
//
// Questions have four kinds, named by the number of searches, such as "what is the currency of the neighbour east of the country of abia
// ?", of three: a region's country, its neighbour, the neighbour's currency.
//
// No question names its books. [Demonstrations] take place in made-up worlds and each is right in its own, but the worlds differ in where a
// fact is kept: any of a few usual books has it. So what can be learned from them is how to look something up, and that the right book
// depends on the question; which book it is in the real world is left to be found by trying.
//
// Countries that border each other are in the same split where that can be done, and only such neighbours are told of, so no held-out
// country, region or capital occurs in a training question or in its answer; tests hold that. Where facts are kept is the same in every
// split: training can bring exactly that to the test.
package library
