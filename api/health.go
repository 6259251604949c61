package api

import (
	"encoding/json"
	"net/http"
	"time"

	"mcpbridge/session"
)

// health is what a bridge's health page says.
type health struct {
	Status        string           `json:"status"`
	Bridge        string           `json:"bridge"`
	Revision      uint64           `json:"revision"`
	Providers     []healthProvider `json:"providers"`
	Tools         []healthTool     `json:"tools"`
	CallsInFlight int              `json:"callsInFlight"`
	Streams       int              `json:"streams"`
}

type healthProvider struct {
	Provider  string     `json:"provider"`
	Title     string     `json:"title,omitempty"`
	Version   string     `json:"version,omitempty"`
	Connected bool       `json:"connected"`
	Instances int        `json:"instances"`
	LastSeen  *time.Time `json:"lastSeen,omitempty"` // when it left
	Tools     int        `json:"tools"`
	Held      int        `json:"held,omitempty"` // changed definitions that wait for approval
}

type healthTool struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
}

// status asks a bridge's session for its status.
func (s *Server) status(r *http.Request, id session.BridgeID) (st session.Status, err error) {
	err = s.cfg.Directory.With(r.Context(), id, func(live *session.Session) error {
		st, err = live.Status()
		return err
	})
	return st, err
}

func describe(id session.BridgeID, st session.Status) health {
	h := health{
		Status: "ok", Bridge: string(id), Revision: st.Revision,
		Providers: []healthProvider{}, Tools: []healthTool{}, CallsInFlight: st.Calls, Streams: st.Streams,
	}
	for _, p := range st.Providers {
		hp := healthProvider{
			Provider: string(p.ID), Title: p.Title, Version: p.Version,
			Connected: p.Instances > 0, Instances: p.Instances, Tools: len(p.Tools), Held: p.Held,
		}
		if !p.LeftAt.IsZero() {
			hp.LastSeen = &p.LeftAt
		}
		h.Providers = append(h.Providers, hp)
		for _, t := range p.Tools {
			h.Tools = append(h.Tools, healthTool{t.Exposed, string(p.ID)})
		}
	}
	return h
}

// bridgeHealth answers GET /b/{bridge}/health.
func (s *Server) bridgeHealth(w http.ResponseWriter, r *http.Request, id session.BridgeID) {
	st, err := s.status(r, id)
	if err != nil {
		s.refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, describe(id, st))
}

// healthz says that the process is there.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz says whether new work should come here, and if not, why.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	switch {
	case s.draining.Load():
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "draining"})
	case s.cfg.Directory.Err() != nil:
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "the store refuses writes"})
	default:
		writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("api: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that has gone needs no answer
}
