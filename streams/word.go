package streams

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// word is what a reader says to the broker about a message that it was sent, at the message's reply subject.
//
// The client library's messages have methods that say the same words. They are not used: leases and feeds keep reply subjects and
// not messages, a word whose answer was lost is said again, which those methods refuse after the first time, and none of them waits
// until the broker has confirmed that a message goes back.
type word string

const (
	// wordDone ends a message: it is never sent again.
	wordDone word = "+ACK"
	// wordBack has the broker send a message again, to anybody, at once.
	wordBack word = "-NAK"
	// wordWorking has the broker wait once more as long as a reader may take, from when it receives the word.
	wordWorking word = "+WPI"
)

// wordBackAfter is wordBack with a delay; a delay of 0 or less is none.
func wordBackAfter(delay time.Duration) word {
	if delay <= 0 {
		return wordBack
	}
	return word(fmt.Sprintf(`%s {"delay": %d}`, wordBack, delay.Nanoseconds()))
}

// wordRefused ends a message that cannot be used. The reason is for the broker's advisories alone.
func wordRefused(reason schemas.Reason) word { return word("+TERM " + string(reason)) }

// goesBack is whether the message is to be sent again.
func (w word) goesBack() bool { return strings.HasPrefix(string(w), string(wordBack)) }

// say says a word once and does not wait for its confirmation: a word that is lost has the broker send the message again.
func (r *Run) say(reply string, w word) error { return r.nc.Publish(reply, []byte(w)) }

// ackTimeout bounds the wait for the answer to an acknowledgement.
const ackTimeout = 2 * time.Second

// ack says a word once and waits until the broker has confirmed it.
func (r *Run) ack(ctx context.Context, reply string, w word) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	_, err := r.nc.RequestWithContext(ctx, reply, []byte(w))
	return err
}
