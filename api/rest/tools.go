package rest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sort"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mcpbridge/api/reveal"
	"mcpbridge/session"
	"mcpbridge/store"
)

// kinds are the words of the query parameter kind.
var kinds = map[string]session.Kind{
	"tools": session.KindTool, "prompts": session.KindPrompt, "resources": session.KindResource, "templates": session.KindTemplate,
}

type (
	toolsInput struct {
		Bridge session.BridgeID `path:"bridge" doc:"The bridge's ID."`
		Kind   string           `query:"kind" enum:"tools,prompts,resources,templates" default:"tools" doc:"What to list: templates are those of resources."`
		Held   bool             `query:"held" doc:"Only what waits for approval, or was rejected."`
		Limit  int              `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Tools of one page."`
		Cursor string           `query:"cursor" maxLength:"16384" doc:"nextCursor of the page before; none gives the first page."`
	}
	toolsOutput struct {
		Body toolsPage
	}
	toolsPage struct {
		Tools      []tool `json:"tools" doc:"In the order of their names."`
		NextCursor string `json:"nextCursor,omitempty" doc:"Absent on the last page."`
	}
	// tool is an offer as those see it who watch over a bridge.
	tool struct {
		Name         string   `json:"name" doc:"What clients see, or would see: the name of a tool or prompt, the URI of a resource, the URI template of a template."`
		Provider     string   `json:"provider" doc:"Who offers it."`
		ProviderName string   `json:"providerName" doc:"The provider's own name for it."`
		Listed       bool     `json:"listed" doc:"Clients are listed it. Not so where a tool was taken off and came back with another definition."`
		Hash         string   `json:"hash,omitempty" doc:"Names the listed definition."`
		Warnings     []string `json:"warnings" doc:"What people would not see of the listed definition."`
		Held         *held    `json:"held,omitempty" doc:"A changed definition that is not listed until it is approved."`
	}
	held struct {
		Hash         string          `json:"hash" doc:"Names the held definition, for approval."`
		Since        time.Time       `json:"since"`
		Rejected     bool            `json:"rejected,omitempty" doc:"It was rejected. It may be approved all the same."`
		RefusesCalls bool            `json:"refusesCalls,omitempty" doc:"Calls are refused until it is approved: the listed definition promises more (annotations)."`
		Changes      []reveal.Change `json:"changes" doc:"What has changed, value by value; all of it, where nothing is listed."`
		Warnings     []string        `json:"warnings" doc:"What people would not see of it."`
	}

	decisionInput struct {
		Bridge session.BridgeID `path:"bridge" doc:"The bridge's ID."`
		Name   string           `path:"name" doc:"The tool's name as the list of tools has it."`
		Kind   string           `query:"kind" enum:"tools,prompts,resources,templates" default:"tools" doc:"What the name names."`
		Body   struct {
			Hash string `json:"hash" pattern:"^[0-9a-f]{64}$" doc:"Of what is held, so that nothing is approved but what was looked at."`
		}
	}
)

func (s *server) registerTools(operation func(id, method, path, summary string, status int, errs ...int) huma.Operation) {
	list := operation("listTools", http.MethodGet, "/api/v1/bridges/{bridge}/tools", "List a bridge's tools", http.StatusOK,
		http.StatusNotFound, http.StatusUnprocessableEntity)
	list.Description = "With what is held of each: where the bridge's policy pins definitions, a changed one is shown here, and not to clients, until it is approved."
	huma.Register(s.api, list, s.tools)
	approve := operation("approveTool", http.MethodPost, "/api/v1/bridges/{bridge}/tools/{name}/approve", "Approve a changed definition", http.StatusNoContent,
		http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests)
	approve.Description = "Clients are listed it and told so. Approving it again changes nothing; 409 if something else is held by now, or nothing."
	huma.Register(s.api, approve, func(ctx context.Context, in *decisionInput) (*struct{}, error) {
		return nil, s.decide(ctx, in, "approved", (*session.Session).Approve)
	})
	reject := operation("rejectTool", http.MethodPost, "/api/v1/bridges/{bridge}/tools/{name}/reject", "Reject a changed definition", http.StatusNoContent,
		http.StatusBadRequest, http.StatusNotFound, http.StatusConflict)
	reject.Description = "The earlier one stays listed. It is remembered as rejected until the provider offers another."
	huma.Register(s.api, reject, func(ctx context.Context, in *decisionInput) (*struct{}, error) {
		return nil, s.decide(ctx, in, "rejected", (*session.Session).Reject)
	})
}

func (s *server) tools(ctx context.Context, in *toolsInput) (*toolsOutput, error) {
	after, ok := openToolCursor(in.Cursor)
	if !ok {
		return nil, invalid("query.cursor", "", "not a cursor of this API; use nextCursor as it came")
	}
	var all []session.Definition
	err := s.live(ctx, in.Bridge, func(live *session.Session) (err error) {
		all, err = live.Definitions(kinds[in.Kind])
		return err
	})
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: list tools: %w", err), "path.bridge", string(in.Bridge))
	}
	out := &toolsOutput{Body: toolsPage{Tools: []tool{}}}
	for _, d := range all[sort.Search(len(all), func(i int) bool { return all[i].Compare(&after) > 0 }):] {
		if in.Held && d.Held == nil {
			continue
		}
		if len(out.Body.Tools) == in.Limit {
			out.Body.NextCursor = sealToolCursor(after)
			break
		}
		after = d
		out.Body.Tools = append(out.Body.Tools, showTool(&d))
	}
	return out, nil
}

func showTool(d *session.Definition) tool {
	t := tool{Name: d.Exposed, Provider: string(d.Provider), ProviderName: d.Name, Listed: d.Listed != nil, Warnings: []string{}}
	var was []byte
	if d.Listed != nil {
		was = d.Listed.Definition
		t.Hash = d.Token(d.Listed)
		t.Warnings = append(t.Warnings, reveal.Warnings("the definition has", was)...)
	}
	if d.Held != nil {
		now := d.Held.Definition
		t.Held = &held{
			Hash: d.Token(d.Held), Since: d.Since.UTC(), Rejected: d.Rejected, RefusesCalls: d.Blocks,
			Changes: reveal.Diff(was, now), Warnings: append([]string{}, reveal.Warnings("the definition has", now)...),
		}
	}
	return t
}

// decide approves or rejects.
func (s *server) decide(ctx context.Context, in *decisionInput, what string, f func(*session.Session, context.Context, session.Kind, string, string) error) error {
	err := s.live(ctx, in.Bridge, func(live *session.Session) error {
		return f(live, ctx, kinds[in.Kind], in.Name, in.Body.Hash)
	})
	if err != nil {
		return s.problem(ctx, fmt.Errorf("rest: a definition is to be %s: %w", what, err), "path.name", in.Name)
	}
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelInfo, "a changed definition was decided on", slog.String("decision", what),
			slog.String("bridge", string(in.Bridge)), slog.String("list", in.Kind), slog.String("name", in.Name), slog.String("hash", in.Body.Hash))
	}
	return nil
}

// live calls f with the live session of a bridge that exists.
func (s *server) live(ctx context.Context, id session.BridgeID, f func(*session.Session) error) error {
	if _, err := s.find(ctx, id); err != nil {
		return err
	}
	if s.Session == nil {
		return store.ErrNotFound
	}
	return s.Session(ctx, id, f)
}

// toolCursor is the last tool seen.
type toolCursor struct {
	Exposed, Provider, Name string
	Kind                    session.Kind
}

func sealToolCursor(d session.Definition) string {
	text, _ := json.Marshal(toolCursor{d.Exposed, string(d.Provider), d.Name, d.Kind}) // always encodes
	return base64.RawURLEncoding.EncodeToString(text)
}

func openToolCursor(cursor string) (d session.Definition, ok bool) {
	if cursor == "" {
		return d, true
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	var c toolCursor
	if err != nil || json.Unmarshal(text, &c) != nil || c.Exposed == "" {
		return d, false
	}
	return session.Definition{Exposed: c.Exposed, PinKey: session.PinKey{Provider: session.ProviderID(c.Provider), Kind: c.Kind, Name: c.Name}}, true
}
