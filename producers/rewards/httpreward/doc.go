// Package httpreward is the reward of type http: a service that somebody runs scores finished rollouts. Each score is a POST
// with a [Request] as JSON; the service answers 200 with an [Answer]. docs/extending.md has both bodies as JSON schemas and a
// service in Python.
//
//	tasks:
//	  arithmetic:
//	    reward:
//	      type: http
//	      url: http://127.0.0.1:8900/score
//
// A rollout that the service does not score is never trained on: its ticket goes back for another try, a bounded number of
// times.
package httpreward
