// Package chaos runs a real training run and breaks it: it kills roles with SIGKILL at random instants, stalls
// links, freezes processes, fills streams and sends hostile messages, while a witness writes down every message
// that the broker stored. In the end an audit accounts for each.
//
// A stranger who may publish as a producer, and is first, is the producer: where a message has gone with the broker's store, an exact
// copy of it counts as the message, once, and no altered copy of it is sent.
package chaos
