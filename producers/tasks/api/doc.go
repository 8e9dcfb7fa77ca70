// Package api is a task that can be solved by writing code alone. Each question has functions with made-up names, whose signatures it draws
// anew, and asks for their results:
//
//	17 lump 23 ?              submit ( lump ( 23 , 17 , tin ) )
//	( 17 lump 23 ) fold 9 ?   submit ( fold ( lump ( 23 , 17 , tin ) , 9 , oak ) )
//
// help ( lump ) says "lump takes the second , the first and tin , once .": the order of the arguments, one of 20 further words, and whether
// the result goes through the function again. A function returns a hash below 1,000,000, so that nobody can compute or guess it, and a call
// with other arguments is an error that says to look at help. The demonstrations look at help in half the cases, and give up after half of
// their errors: that looking first pays is for the rewards to teach.
package api
