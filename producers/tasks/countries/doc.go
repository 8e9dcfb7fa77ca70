// Package countries is the built-in task: multi-hop questions about real countries, answered by searching a
// small corpus of real facts.
//
// The facts come from github.com/pariz/gountries (see NOTICE). A country has a capital, a currency, a
// calling code, at most one neighbour and up to five regions. Passages read
//
//	sweden has capital stockholm, currency sek, code 46, neighbour finland.
//	abia is a region of nigeria.
//
// and questions are of four kinds, named by the searches they take: "1" asks for the capital, currency or
// code of a country, "2n" of its neighbour, "2r" of the country of a region, "3" of the neighbour of the
// country of a region.
//
// Every country is in the same split as its neighbour and its regions, so no held-out country, region or capital occurs in a training
// question or answer; tests hold that.
//
// The vocabulary has every word of the corpus, so a held-out name has an id. A policy's knowledge of such a word before test time comes
// from [Demonstrations]: trajectories scripted in made-up worlds whose names are words drawn at random and whose facts are drawn anew each
// time.
package countries
