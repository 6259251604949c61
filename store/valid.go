package store

import (
	"errors"
	"fmt"

	"mcpbridge/session"
)

// maxName is the longest token ID and secret name, in bytes.
const maxName = 256

var (
	errClosed   = errors.New("the store is closed")
	errNoSecret = errors.New("no secret was minted")
)

func validBridge(id session.BridgeID) error {
	if !id.Valid() {
		return fmt.Errorf("%.80q is not a bridge ID", string(id))
	}
	return nil
}

func validName(s string) error {
	if len(s) == 0 || len(s) > maxName {
		return fmt.Errorf("%.80q has %d bytes, want 1 to %d", s, len(s), maxName)
	}
	return nil
}

// validTokens tells whether the tokens can be written together for the bridge;
// for the empty ID, as tokens of no bridge.
func validTokens(bridge session.BridgeID, tokens ...Token) error {
	seen := make(map[string]bool, len(tokens))
	for i := range tokens {
		t := &tokens[i]
		if err := validName(t.ID); err != nil {
			return err
		}
		if t.Bridge != bridge {
			return fmt.Errorf("token %s belongs to the bridge %.80q, want %q", t.ID, string(t.Bridge), string(bridge))
		}
		if seen[t.ID] {
			return fmt.Errorf("token %s: %w", t.ID, ErrExists)
		}
		seen[t.ID] = true
	}
	return nil
}

// validRegistration refuses what could not be read back.
func validRegistration(r session.Registration) error {
	if !r.Provider.Valid() {
		return fmt.Errorf("%.80q is not a provider ID", string(r.Provider))
	}
	for i := range r.Tools {
		if err := validTool(&r.Tools[i]); err != nil {
			return err
		}
	}
	return nil
}

func validTool(t *session.Tool) error {
	if t.Kind >= session.NumKinds {
		return fmt.Errorf("tool %.80q: there is no kind %d", t.Name, t.Kind)
	}
	if t.NameAt < 0 || t.NameAt > t.NameEnd || t.NameEnd > len(t.Definition) {
		return fmt.Errorf("tool %.80q: its name is said to be at %d to %d of %d bytes",
			t.Name, t.NameAt, t.NameEnd, len(t.Definition))
	}
	return nil
}

// validChanges tells whether the changes belong to the Shard, of n, and can be
// read back.
func validChanges(shard Shard, n int, changes []session.Change) error {
	if err := validShard(shard, n); err != nil {
		return err
	}
	for i := range changes {
		c := &changes[i]
		if ShardOf(c.Bridge, n) != shard {
			return fmt.Errorf("the bridge %.80q belongs to shard %d", string(c.Bridge), ShardOf(c.Bridge, n))
		}
		for _, r := range c.Put {
			if err := validRegistration(r); err != nil {
				return fmt.Errorf("bridge %.80q: %w", string(c.Bridge), err)
			}
		}
		for i := range c.PutTasks {
			if err := validTask(&c.PutTasks[i]); err != nil {
				return fmt.Errorf("bridge %.80q: %w", string(c.Bridge), err)
			}
		}
		for i := range c.PutPins {
			if err := validPin(&c.PutPins[i]); err != nil {
				return fmt.Errorf("bridge %.80q: %w", string(c.Bridge), err)
			}
		}
	}
	return nil
}

func validShard(shard Shard, n int) error {
	if shard < 0 || int(shard) >= n {
		return fmt.Errorf("there is no shard %d, the last is %d", shard, n-1)
	}
	return nil
}
