package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// registered is the answer to registerTools and unregisterTools.
type registered struct {
	Type     string          `json:"type"`
	ID       json.RawMessage `json:"id,omitempty"`
	Revision uint64          `json:"revision"`
	Tools    []exposure      `json:"tools"`
	Rejected []rejection     `json:"rejected"`
	Held     []holding       `json:"held,omitempty"`
}

type exposure struct {
	Name      string   `json:"name"`
	ExposedAs string   `json:"exposedAs"`
	Warnings  []string `json:"warnings"`
}

type rejection struct {
	Name    string `json:"name"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// holding tells of a changed definition that waits for approval. Where clients are listed
// an earlier one, the tool is among the registered too.
type holding struct {
	Name      string `json:"name"`
	ExposedAs string `json:"exposedAs,omitempty"`
	Hash      string `json:"hash"` // names what is held, for approval
	Message   string `json:"message"`
}

func (c *bridgeV1) registerTools(m *message) error {
	l := c.e.limits
	elements, err := m.elements(mTools)
	if err != nil {
		return &problem{code: "bad_message", message: err.Error(), of: m.kind}
	}
	var tools []session.Tool
	var refused []string
	answer := registered{Type: "registered", ID: own(m.members[mID]), Tools: []exposure{}, Rejected: []rejection{}}
	warnings := map[string][]string{}
	for i, raw := range elements {
		t, warned, err := readTool(raw, l)
		if err == nil && slices.ContainsFunc(tools, func(u session.Tool) bool { return u.Name == t.Name }) {
			err = &toolError{"duplicate", fmt.Sprintf("tool %d of the message has the name of an earlier one", i)}
			answer.Rejected = append(answer.Rejected, c.rejection(t.Name, err))
			continue
		}
		if err != nil {
			answer.Rejected = append(answer.Rejected, c.rejection(t.Name, err))
			refused = append(refused, t.Name)
			continue
		}
		tools = append(tools, t)
		warnings[t.Name] = warned
	}
	ack := func(r session.Registered) { c.acknowledge(answer, warnings, r, "registerTools") }
	if string(m.members[mReplace]) == "true" {
		return c.inst.Replace(session.KindTool, tools, refused, ack)
	}
	return c.inst.Register(tools, ack)
}

func (c *bridgeV1) unregisterTools(m *message) error {
	elements, err := m.elements(mNames)
	if err != nil {
		return &problem{code: "bad_message", message: err.Error(), of: m.kind}
	}
	var names []string
	for _, raw := range elements {
		name, ok := wire.Text(raw)
		if !ok {
			return &problem{code: "bad_message", message: `member "names" must be an array of strings`, of: m.kind}
		}
		names = append(names, name)
	}
	answer := registered{Type: "registered", ID: own(m.members[mID]), Tools: []exposure{}, Rejected: []rejection{}}
	return c.inst.Unregister(names, func(r session.Registered) { c.acknowledge(answer, nil, r, "unregisterTools") })
}

func (c *conn) rejection(name string, err error) rejection {
	r := rejection{Name: name, Message: err.Error()}
	if e, ok := errors.AsType[*toolError](err); ok {
		r.Code = e.code
	} else {
		r.Code = c.e.cfg.Fault(err).Name
	}
	return r
}

func (c *conn) logRejected(x rejection) {
	c.e.cfg.Log.Warn("tool rejected", "bridge", c.bridge, "tool", clip(x.Name), "code", x.Code, "reason", x.Message)
}

// acknowledge tells what became of a registration, once that is durable. It runs
// inside a turn.
func (c *bridgeV1) acknowledge(a registered, warnings map[string][]string, r session.Registered, of string) {
	if r.Err != nil {
		f := c.e.cfg.Fault(r.Err)
		c.e.cfg.Log.Warn("registration failed", "bridge", c.bridge, "err", r.Err)
		if c.greeted.Load() {
			c.out.send(encode(map[string]string{"type": "error", "code": f.Name, "message": f.Message, "of": of}))
		}
		return
	}
	for _, x := range r.Rejected {
		a.Rejected = append(a.Rejected, c.rejection(x.Name, x.Err))
	}
	for _, x := range a.Rejected {
		c.logRejected(x)
	}
	held := map[string]string{}
	for _, h := range r.Held {
		c.logHeld(h)
		held[h.Name] = c.heldMessage(h)
		a.Held = append(a.Held, holding{h.Name, h.Exposed, h.Hash, held[h.Name]})
	}
	if !c.greeted.Load() {
		return
	}
	a.Revision = r.Revision
	for _, x := range r.Tools {
		w := warnings[x.Name]
		if safe := session.SafeName(x.Name); x.Exposed != safe {
			w = append(slices.Clone(w), fmt.Sprintf("another tool of the bridge has the name %q; clients see this one as %q", safe, x.Exposed))
		}
		if m := held[x.Name]; m != "" {
			w = append(slices.Clone(w), m)
		}
		if w == nil {
			w = []string{}
		}
		a.Tools = append(a.Tools, exposure{x.Name, x.Exposed, w})
	}
	c.out.send(encode(a))
}
