package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"mcpbridge/session"
	"mcpbridge/store"
)

// mergePatch is the media type of RFC 7396.
const mergePatch = "application/merge-patch+json"

type (
	updateInput struct {
		Bridge  session.BridgeID `path:"bridge" doc:"The bridge's ID."`
		IfMatch string           `header:"If-Match" maxLength:"200" doc:"The ETag of the bridge that the change is meant for: 412 if it has changed since. Without it the change is made to whatever there is."`
		RawBody []byte           `contentType:"application/merge-patch+json"` // tells null from absent
		Body    updateBody
	}
	updateBody struct {
		Name   *string `json:"name,omitempty" maxLength:"200" pattern:"^[^\\x00-\\x1f\\x7f]*$" doc:"For people. Absent: as it is."`
		Owner  *string `json:"owner,omitempty" maxLength:"200" pattern:"^[^\\x00-\\x1f\\x7f]*$" doc:"For people. Absent: as it is."`
		Policy *policy `json:"policy,omitempty"`
	}
)

func (s *server) registerUpdate(op huma.Operation) {
	op.Description = "A merge patch (RFC 7396): members that are absent stay as they are; null takes away a name, an owner or a policy, and makes a member of the policy its default again. It binds at once, in live sessions too."
	huma.Register(s.api, op, s.update)
}

// maxTries bounds how often an update without If-Match meets another one.
const maxTries = 10

func (s *server) update(ctx context.Context, in *updateInput) (*getOutput, error) {
	b, err := s.change(ctx, in)
	if told, ok := errors.AsType[huma.StatusError](err); ok {
		return nil, told
	}
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: update bridge: %w", err), "path.bridge", string(in.Bridge))
	}
	if err := s.Updated(ctx, b.ID); err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: update bridge: %w", err), "", "")
	}
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelInfo, "bridge updated", slog.String("bridge", string(b.ID)))
	}
	return &getOutput{ETag: etag(b.Version), Body: s.show(b)}, nil
}

// change writes the bridge as the patch makes it.
func (s *server) change(ctx context.Context, in *updateInput) (store.Bridge, error) {
	for try := 1; ; try++ {
		b, err := s.find(ctx, in.Bridge)
		if err != nil {
			return b, err
		}
		if m := strings.TrimSpace(in.IfMatch); m != "" && m != "*" && m != etag(b.Version) {
			return b, store.ErrConflict
		}
		var said map[string]json.RawMessage
		if err := json.Unmarshal(in.RawBody, &said); err != nil {
			return b, invalid("body", "", err.Error())
		}
		if said["name"] != nil {
			b.Name = or(in.Body.Name, "")
		}
		if said["owner"] != nil {
			b.Owner = or(in.Body.Owner, "")
		}
		if said["policy"] != nil {
			if in.Body.Policy == nil {
				b.Policy = nil
			} else if b.Policy, err = merge(b.Policy, in.Body.Policy.RawMessage); err != nil {
				return b, invalid("body.policy", "", err.Error())
			}
			if err := checkPolicy(b.Policy); err != nil {
				return b, err
			}
		}
		b.Updated = s.Now().UTC()
		b, err = s.Store.UpdateBridge(ctx, s.epoch(b.ID), b)
		if err == nil || in.IfMatch != "" || try == maxTries || !errors.Is(err, store.ErrConflict) {
			return b, err
		}
	}
}

func or[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}

// checkPolicy refuses a policy that is too long, or says what no bridge can do.
func checkPolicy(text json.RawMessage) error {
	if len(text) > MaxPolicy {
		return invalid("body.policy", "", fmt.Sprintf("expected at most %d bytes, have %d", MaxPolicy, len(text)))
	}
	if _, err := session.ParsePolicy(text); err != nil {
		return invalid("body.policy", "", err.Error())
	}
	return nil
}

// merge applies a patch to a JSON value (RFC 7396, section 2). Numbers keep every digit.
func merge(value, patch json.RawMessage) (json.RawMessage, error) {
	var changes map[string]json.RawMessage
	if !isObject(patch) {
		return patch, nil
	}
	if err := json.Unmarshal(patch, &changes); err != nil {
		return nil, err
	}
	members := map[string]json.RawMessage{}
	if isObject(value) {
		if err := json.Unmarshal(value, &members); err != nil {
			return nil, err
		}
	}
	for name, change := range changes {
		if string(change) == "null" {
			delete(members, name)
			continue
		}
		merged, err := merge(members[name], change)
		if err != nil {
			return nil, err
		}
		members[name] = merged
	}
	if len(members) == 0 {
		return json.RawMessage("{}"), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(members); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

func isObject(text json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) }
