package api

import (
	"net/http"
	"strings"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/session"
	"mcpbridge/store"
)

// The routes of mcp-bridge-cf, whose rooms are bridges here, so that its clients
// and its extension work after changing only the base URL.

// room is the bridge that a request's ?room= names. False when it was refused.
func (s *Server) room(w http.ResponseWriter, r *http.Request) (session.BridgeID, bool) {
	id := session.BridgeID(r.URL.Query().Get("room"))
	if id == "" {
		return "default", true
	}
	if !id.Valid() {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "room must be 1 to 64 of [A-Za-z0-9_-]"})
		return "", false
	}
	return id, true
}

// inRoom makes a bridge's route one of a room.
func (s *Server) inRoom(next func(http.ResponseWriter, *http.Request, session.BridgeID)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if id, ok := s.room(w, r); ok {
			next(w, r, id)
		}
	}
}

// newRoom answers GET /new with a room that nobody can guess. With authentication
// on, an administrator asks, and the room comes with its tokens.
func (s *Server) newRoom(w http.ResponseWriter, r *http.Request) {
	cors(w, r)
	if err := s.auth.admin(r); err != nil {
		s.refuse(w, err)
		return
	}
	id := session.NewBridgeID()
	base := strings.TrimRight(s.cfg.PublicURL, "/")
	answer := map[string]string{
		"room":          string(id),
		"extension_url": "ws" + strings.TrimPrefix(base, "http") + "/ws/extension?room=" + string(id),
		"mcp_url":       base + "/mcp?room=" + string(id),
		"health_url":    base + "/health?room=" + string(id),
	}
	if !s.cfg.Open {
		now := time.Now()
		ct, client := credential.New(store.ClientToken, id, now)
		pt, provider := credential.New(store.ProviderToken, id, now)
		b := store.Bridge{ID: id, Created: now, Updated: now, Version: 1}
		epoch := s.cfg.Directory.Epoch(store.ShardOf(id, s.cfg.Store.Shards()))
		if err := s.cfg.Store.CreateBridge(r.Context(), epoch, b, ct, pt); err != nil {
			s.refuse(w, err)
			return
		}
		answer["client_token"], answer["provider_token"] = client.Reveal(), provider.Reveal()
	}
	writeJSON(w, http.StatusOK, answer)
}

// roomHealth answers GET /health.
func (s *Server) roomHealth(w http.ResponseWriter, r *http.Request, id session.BridgeID) {
	cors(w, r)
	g, err := s.auth.bridge(r, id, store.ClientToken, store.ProviderToken)
	if err != nil {
		s.refuse(w, err)
		return
	}
	defer g.done()
	st, err := s.status(r, id)
	if err != nil {
		s.refuse(w, err)
		return
	}
	connected, tools := false, []string{}
	for _, p := range st.Providers {
		connected = connected || p.Instances > 0
		for _, t := range p.Tools {
			tools = append(tools, t.Exposed)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"status": "ok", "room": string(id), "connected": connected, "tools": tools, "toolCount": len(tools),
	})
}
