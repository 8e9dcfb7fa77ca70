package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// keyring makes the keys of the episodes of a run whose agents may outlive their producer. Every producer of the run knows such a key for
// genuine, whichever made it: it is the episode's name, a number that tells the agents of an episode apart, and a code of both under the
// run's secret. A nil keyring made none.
type keyring struct{ secret []byte }

// keyMark begins the keys of a keyring.
const keyMark = "weir."

var keyText = base64.RawURLEncoding

// newKey makes the key of another agent of an episode.
func (k *keyring) newKey(episode string) string {
	agent := make([]byte, 9)
	_, _ = rand.Read(agent) // never fails
	return k.keyOf(keyText.EncodeToString([]byte(episode)) + "." + keyText.EncodeToString(agent))
}

// keyOf is a key by its part that is not secret.
func (k *keyring) keyOf(name string) string {
	h := hmac.New(sha256.New, k.secret)
	h.Write([]byte("agent\x00" + name)) // a hash never fails
	return keyMark + name + "." + keyText.EncodeToString(h.Sum(nil)[:20])
}

// nameOf is the part of a key that is not secret, which a journal may hold.
func nameOf(key string) string {
	name, _ := strings.CutPrefix(key, keyMark)
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		name = name[:at]
	}
	return name
}

// episodeOf is the episode of a key that a producer of the run made; "" of another key.
func (k *keyring) episodeOf(key string) string {
	if k == nil || !hmac.Equal([]byte(key), []byte(k.keyOf(nameOf(key)))) {
		return ""
	}
	text, _, _ := strings.Cut(nameOf(key), ".")
	episode, _ := keyText.DecodeString(text) // it was encoded
	return string(episode)
}
