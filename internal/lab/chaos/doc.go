// Package chaos runs a real training run and breaks it: it kills roles with SIGKILL at random instants, stalls
// links, freezes processes, fills streams and sends hostile messages, while a witness writes down every message
// that the broker stored. In the end an audit accounts for each.
package chaos
