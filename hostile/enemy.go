package main

import (
	"context"
	"regexp"
)

// enemy is one way to harm a server.
type enemy struct {
	name string
	// offend does it once, and returns what the offender gets. An error means that it
	// could not even be tried.
	offend func(ctx context.Context, t *target) (string, error)
	// gets matches all that the offender may get.
	gets string
	// crowd is how many do it at once.
	crowd int
	slow  bool // once takes it longer than a few seconds
}

// enemies are all of them.
func enemies() []enemy {
	return append(clients(), providers()...)
}

// anybody is what anybody may get of a server that all attack at once, if they do nothing
// to answer its pings.
const anybody = `429 .*(connections of providers begun a second|under way in the server)|close 4408`

// deserved tells whether the offender got what it should.
func (e *enemy) deserved(got string) bool {
	return regexp.MustCompile(`(?s)^(?:` + e.gets + `|` + anybody + `)`).MatchString(got)
}
