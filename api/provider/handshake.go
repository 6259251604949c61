package provider

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"mcpbridge/api/reveal"
	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// asking is how far a request of the handshake is.
type asking uint8

const (
	unsent asking = iota
	sent
	answered
)

const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25" // the one that is asked for
	// discoverPatience is how long a server may leave server/discover unanswered
	// before it is taken for one that does not know it, and how long one that refused
	// initialize may.
	discoverPatience = 2 * time.Second
)

var legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// hello is what a server says of itself.
type hello struct {
	name, title, version string
	about                session.About
	warnings             []string // of what it says
	has                  [session.NumKinds]bool
	changes              [session.NumKinds]bool // it tells of changes
}

// greet asks for the stateless revision first. A server that does not know it answers
// with an error, or not at all.
func (m *mcpServer) greet() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.discover = sent
	m.request("discover", "server/discover", "", true)
	m.after(discoverPatience, func() {
		if m.era.Load() == eraNone && m.init == unsent {
			m.initialize()
		}
	})
	return nil
}

// initialize opens the handshake of the revisions up to 2025-11-25.
func (m *mcpServer) initialize() {
	m.init = sent
	m.request("initialize", "initialize",
		`"protocolVersion":"`+legacyVersion+`","capabilities":`+askedCaps+`,"clientInfo":`+string(m.self), false)
}

// discovered takes the answer to server/discover.
func (m *mcpServer) discovered(r *rpc) error {
	if m.discover != sent || m.era.Load() != eraNone {
		return nil
	}
	m.discover = answered
	h, versions := readHello(r.result.Raw)
	if slices.Contains(versions, modernVersion) {
		if m.init == unsent || m.refusal != "" {
			return m.ready(h, eraModern)
		}
		m.found = h // initialize was sent meanwhile, and decides
		return nil
	}
	switch {
	case m.init == unsent:
		m.initialize()
	case m.refusal != "":
		return refusedHello(m.refusal)
	}
	return nil
}

// initialized takes the answer to initialize. One that refuses it may still speak the
// stateless revision.
func (m *mcpServer) initialized(r *rpc) error {
	if m.init != sent || m.era.Load() != eraNone {
		return nil
	}
	m.init = answered
	h, versions := readHello(r.result.Raw)
	if len(versions) == 1 && slices.Contains(legacyVersions, versions[0]) {
		m.out.send([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		return m.ready(h, eraLegacy)
	}
	m.refusal = "the server's answer to initialize has no revision that the bridge speaks"
	if raw := r.members[rError]; raw != nil {
		m.refusal = "the server refused initialize"
		if e, err := readError(raw, m.e.limits.MessageDepth); err == nil {
			m.refusal += ": " + e.Message
		}
	}
	switch {
	case m.found != nil:
		return m.ready(m.found, eraModern)
	case m.discover == answered:
		return refusedHello(m.refusal)
	}
	m.after(discoverPatience, func() {
		if m.era.Load() == eraNone {
			m.e.wg.Go(func() { m.refuseClose(closeBadHello, closeReason(m.refusal)) })
		}
	})
	return nil
}

func refusedHello(why string) error {
	return &problem{code: "bad_hello", message: why, close: closeBadHello}
}

// readHello reads the result of initialize or server/discover, with the revisions that
// it names. None when it cannot be read.
func readHello(raw json.RawMessage) (*hello, []string) {
	type info struct{ Name, Title, Version string }
	var result struct {
		ProtocolVersion   string
		SupportedVersions []string
		Instructions      json.RawMessage
		Capabilities      json.RawMessage
		ServerInfo        info
		Meta              struct {
			ServerInfo info `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if raw == nil || json.Unmarshal(raw, &result) != nil {
		return nil, nil
	}
	var capabilities map[string]json.RawMessage
	_ = json.Unmarshal(result.Capabilities, &capabilities) // some write none as []
	i := result.ServerInfo
	if i.Name == "" {
		i = result.Meta.ServerInfo
	}
	h := &hello{name: i.Name, title: cut(i.Title, maxText), version: cut(i.Version, maxText)}
	h.introduce(result.Instructions, capabilities)
	for k := range kinds {
		declared, ok := capabilities[kinds[k].capability]
		h.has[k] = ok || session.Kind(k) == session.KindTool // some have tools and do not declare them
		var c struct{ ListChanged bool }
		h.changes[k] = ok && json.Unmarshal(declared, &c) == nil && c.ListChanged
	}
	if result.ProtocolVersion != "" {
		return h, []string{result.ProtocolVersion}
	}
	return h, result.SupportedVersions
}

// introduce takes what the server says of itself to clients, within bounds.
func (h *hello) introduce(instructions json.RawMessage, capabilities map[string]json.RawMessage) {
	text, _ := wire.Text(instructions)
	if len(text) > maxAbout {
		h.warnings = append(h.warnings, fmt.Sprintf("instructions have %d bytes; the first %d are taken", len(text), maxAbout))
	}
	h.warnings = append(h.warnings, reveal.Warnings("instructions have", instructions)...)
	h.about.Instructions = cut(text, maxAbout)
	for name, to := range map[string]*json.RawMessage{"extensions": &h.about.Extensions, "experimental": &h.about.Experimental} {
		raw := capabilities[name]
		if len(raw) > maxAbout {
			h.warnings = append(h.warnings, fmt.Sprintf("capabilities.%s have %d bytes; at most %d are taken", name, len(raw), maxAbout))
			continue
		}
		*to = object(raw)
	}
}

func cut(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// object is a copy of a raw object, or nil for what is none or is empty.
func object(raw json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || len(members) == 0 {
		return nil
	}
	return own(raw)
}

// provider is the name under which the server's offers are kept: its own, in printable
// ASCII, unless the URL names one.
func (m *mcpServer) provider() session.ProviderID {
	if m.asked {
		return m.named
	}
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '_'
		}
		return r
	}, strings.TrimSpace(m.info.name))
	if id := session.ProviderID(name[:min(len(name), session.MaxProviderID)]); id.Valid() {
		return id
	}
	return session.DefaultProvider
}

// ready ends the handshake and asks for what the server offers.
func (m *mcpServer) ready(h *hello, era uint32) error {
	m.info = *h
	for k, has := range h.has {
		if has {
			m.lists[k] = &lister{}
		}
	}
	m.era.Store(era)
	for _, text := range h.warnings { // the protocol has no way to tell the server
		m.e.cfg.Log.Warn("provider taken with a warning", "bridge", m.bridge, "provider", clip(string(m.provider())), "warning", text)
	}
	m.e.cfg.Log.Debug("MCP server connected", "bridge", m.bridge, "name", m.info.name, "modern", era == eraModern)
	if era == eraModern {
		m.subscribe()
	}
	m.refresh(session.KindTool, 0)
	return nil
}

// subscribe asks a modern server to tell of list changes.
func (m *mcpServer) subscribe() {
	var wanted []string
	for k, name := range map[session.Kind]string{
		session.KindTool: "toolsListChanged", session.KindPrompt: "promptsListChanged", session.KindResource: "resourcesListChanged",
	} {
		if m.info.changes[k] {
			wanted = append(wanted, `"`+name+`":true`)
		}
	}
	if wanted != nil {
		m.listen = m.request("listen", "subscriptions/listen", `"notifications":{`+strings.Join(wanted, ",")+`}`, true)
	}
}

// unheard makes a subscription that the server has ended anew, and reads all lists,
// which may have changed meanwhile. One that it refused is left.
func (m *mcpServer) unheard(r *rpc) {
	m.listen = ""
	if r.members[rError] != nil {
		return
	}
	m.after(listenAgain, func() {
		m.subscribe()
		for k, l := range m.lists {
			if l != nil {
				m.refresh(session.Kind(k), 0)
			}
		}
	})
}
