package main

import (
	"fmt"
	"strconv"

	"github.com/alecthomas/kong"
)

// peerLimit is what one peer may do: a number of 1 or more, "off" for any number, which
// is -1, or "auto" for the default, which is 0.
type peerLimit int

// Decode implements kong's interface.
func (l *peerLimit) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("limit", &text); err != nil {
		return err
	}
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case text == "auto":
		*l = 0
	case text == "off":
		*l = -1
	case err != nil || n < 1:
		return fmt.Errorf("%q is no limit: want a number of at least 1, off or auto", text)
	default:
		*l = peerLimit(n)
	}
	return nil
}
