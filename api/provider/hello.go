package provider

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"mcpbridge/api/reveal"
	"mcpbridge/session"
)

// Bounds of hello's members.
const (
	maxText   = 256                  // title, version, instance, in bytes
	maxResume = 1024                 // in bytes
	maxAbout  = 32 << 10             // instructions; extensions and the like of an MCP server, in bytes
	maxRetain = 365 * 24 * time.Hour // retainSeconds
)

// welcome is the answer to hello.
type welcome struct {
	Type        string        `json:"type"`
	Protocol    int           `json:"protocol"`
	Bridge      string        `json:"bridge"`
	Provider    string        `json:"provider"`
	Instance    string        `json:"instance"`
	Resume      string        `json:"resume"`
	Resumed     bool          `json:"resumed"`
	PingSeconds float64       `json:"pingSeconds"`
	Limits      welcomeLimits `json:"limits"`
}

type welcomeLimits struct {
	FrameBytes   int `json:"frameBytes"`
	ToolBytes    int `json:"toolBytes"`
	Tools        int `json:"tools"`
	SchemaDepth  int `json:"schemaDepth"`
	MessageDepth int `json:"messageDepth"`
	Calls        int `json:"calls"`
}

// resumeToken is what a resume handle says, sealed.
type resumeToken struct {
	Bridge   session.BridgeID   `json:"b"`
	Provider session.ProviderID `json:"p"`
	Instance string             `json:"i"`
	Key      string             `json:"k"` // of the instance in the session; empty in tokens of earlier versions
}

// hello attaches the connection as the provider it names.
func (c *bridgeV1) hello(m *message) error {
	bad := func(format string, args ...any) error {
		return &problem{code: "bad_hello", message: fmt.Sprintf(format, args...), of: "hello", close: closeBadHello}
	}
	if p := m.members[mProtocol]; p != nil && string(p) != "1" {
		return bad("protocol %.20s is not known; this bridge speaks 1", p)
	}
	name, err := m.text(mProvider, session.MaxProviderID)
	if err != nil {
		return bad("%v", err)
	}
	h := session.Hello{Provider: session.ProviderID(name), Retain: -1}
	if name == "" {
		h.Provider = c.named
	}
	if !h.Provider.Valid() {
		return bad(`member "provider" must be 1 to %d characters of printable ASCII`, session.MaxProviderID)
	}
	if h.Title, err = m.text(mTitle, maxText); err != nil {
		return bad("%v", err)
	}
	if h.Version, err = m.text(mVersion, maxText); err != nil {
		return bad("%v", err)
	}
	if h.About.Instructions, err = m.text(mInstructions, maxAbout); err != nil {
		return bad("%v", err)
	}
	for _, text := range reveal.Warnings("instructions have", m.members[mInstructions]) {
		c.e.cfg.Log.Warn("provider taken with a warning", "bridge", c.bridge, "provider", clip(string(h.Provider)), "warning", text)
	}
	instance, err := m.text(mInstance, maxText)
	if err != nil {
		return bad("%v", err)
	}
	if instance == "" {
		instance = rand.Text()
	}
	if raw := m.members[mRetain]; raw != nil {
		seconds, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || seconds < 0 || seconds > maxRetain.Seconds() {
			return bad(`member "retainSeconds" must be a number from 0 to %g`, maxRetain.Seconds())
		}
		h.Retain = time.Duration(seconds * float64(time.Second))
	}
	resume, err := m.text(mResume, maxResume)
	if err != nil {
		return bad("%v", err)
	}
	if before, ok := c.resumed(resume, h.Provider); ok {
		h.Adopt, h.Key = true, before.Key
	}
	if h.Key == "" {
		h.Key = rand.Text()
	}
	c.out.hold() // calls may be waiting, and welcome comes first
	if err := c.attach(h, true); err != nil {
		c.out.release(nil)
		return c.unattached(err)
	}
	c.mu.Lock()
	c.named = h.Provider
	c.mu.Unlock()
	c.greeted.Store(true)
	l := c.e.limits
	c.out.release(encode(welcome{
		Type: "welcome", Protocol: 1, Bridge: string(c.bridge), Provider: string(h.Provider), Instance: instance,
		Resume:  c.e.cfg.Box.Seal(resumePurpose, encode(resumeToken{c.bridge, h.Provider, instance, h.Key})),
		Resumed: h.Adopt, PingSeconds: l.Ping.Seconds(),
		Limits: welcomeLimits{l.FrameBytes, l.ToolBytes, l.Tools, l.SchemaDepth, l.MessageDepth, l.Calls},
	}))
	return nil
}

const resumePurpose = "provider-resume"

// resumed is what a handle says. False when it was not given to the same provider of
// the same bridge, by this process or an earlier one.
func (c *bridgeV1) resumed(handle string, p session.ProviderID) (t resumeToken, ok bool) {
	text, ok := c.e.cfg.Box.Open(resumePurpose, handle)
	ok = ok && json.Unmarshal(text, &t) == nil && t.Bridge == c.bridge && t.Provider == p
	return t, ok
}
