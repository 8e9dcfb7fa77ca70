// Package toolworker serves the tools of episodes from processes of their own, over core NATS, so that the tools' work scales
// apart from producers.
//
// A session is an episode's: its first request goes to the subject that all workers share in a queue group, and a worker with
// room takes it; the others go to that worker's own subject. Every request carries the session, the name of its opening and a
// sequence number: a request that comes again gets the stored reply. While a request waits or is worked on, its worker sends a
// sign of life every second, so that silence means a lost worker; the episode is then given back, and never trained on.
//
// A worker serves with [Run]; a producer calls with a [Client], which stands behind the tools that [Link.Place] made:
//
//	client := toolworker.NewClient(run, toolworker.ClientOptions{})
//	defer client.Close()
//	link.Attach(client)
package toolworker
