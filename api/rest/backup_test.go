package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"mcpbridge/api/rest"
	"mcpbridge/api/wire"
	"mcpbridge/store"
)

// closing tells whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestABackupIsStreamedWithItsLength(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 60_000) // a few pieces
	cut := errors.New("disk on fire at /secret/path")
	for name, test := range map[string]struct {
		file   io.Reader
		err    error
		token  string
		status int
		said   string
		again  string // Retry-After
	}{
		"whole":          {bytes.NewReader(content), nil, adminText, 200, "", ""},
		"fails midway":   {io.MultiReader(bytes.NewReader(content[:300_000]), iotest.ErrReader(cut)), nil, adminText, 200, "", ""},
		"another's turn": {nil, fmt.Errorf("store: backup: %w", store.ErrBackingUp), adminText, 429, "another backup is being made", "5"},
		"a full disk":    {nil, fmt.Errorf("store: backup: /secret/path: %w", syscall.ENOSPC), adminText, 507, "the disk is full", ""},
		"no token":       {nil, nil, "", 401, "needed: Authorization: Bearer", ""},
		"a wrong token":  {nil, nil, "wrong", 401, "needed: Authorization: Bearer", ""},
		"a REST key":     {nil, nil, "key", 403, "it needs the scope admin", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t)
			e.actors["key"] = rest.Actor{Token: "k", Scopes: rest.ScopeRead + " " + rest.ScopeWrite + " " + rest.ScopeTokens}
			file := &closing{Reader: test.file}
			asked := false
			e.config.Backup = func(context.Context) (io.ReadCloser, int64, error) {
				asked = true
				return file, int64(len(content)), test.err
			}
			others := e.config.Fault
			e.config.Fault = func(err error) wire.Fault {
				switch {
				case errors.Is(err, store.ErrBackingUp):
					return wire.Fault{Status: 429, RetryAfter: 5e9, Message: store.ErrBackingUp.Error()}
				case errors.Is(err, syscall.ENOSPC):
					return wire.Fault{Status: 507, Message: "the disk is full"}
				}
				return others(err)
			}
			server := httptest.NewServer(rest.New(e.config))
			defer server.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/backup", nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.token != "" {
				r.Header.Set("Authorization", "Bearer "+test.token)
			}
			answer, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			server.Close() // waits for the handler
			if answer.StatusCode != test.status || answer.Header.Get("Retry-After") != test.again || answer.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%d %v", answer.StatusCode, answer.Header)
			}
			if strings.Contains(string(body), "/secret") {
				t.Errorf("%s", body)
			}
			switch {
			case test.status != 200:
				if err != nil || !strings.Contains(string(body), test.said) || asked != (test.err != nil) {
					t.Errorf("%s, %v, asked %t", body, err, asked)
				}
				return
			case name == "whole":
				if err != nil || !bytes.Equal(body, content) || answer.ContentLength != int64(len(content)) ||
					answer.Header.Get("Content-Type") != "application/octet-stream" ||
					answer.Header.Get("Content-Disposition") != `attachment; filename="mcpbridge-20261130T120000Z.db"` {
					t.Errorf("%d bytes, %v, %v", len(body), err, answer.Header)
				}
			case err == nil || len(body) >= len(content):
				t.Errorf("%d bytes of %d were taken for whole", len(body), len(content))
			case !strings.Contains(e.log.String(), "disk on fire"):
				t.Errorf("the log has %q", &e.log)
			}
			if !file.closed {
				t.Error("the copy is left open")
			}
		})
	}
}

func TestBackupIsDescribedWhereThereIsOne(t *testing.T) {
	e := newEdge(t)
	answer, body := e.do(http.MethodGet, "/api/v1/backup", "")
	e.status(http.StatusNotFound, answer, body)
	e.config.Backup = func(context.Context) (io.ReadCloser, int64, error) { return nil, 0, store.ErrBackingUp }
	e.handler = rest.New(e.config)
	answer, body = e.do(http.MethodGet, "/api/v1/openapi.json", "", "Authorization", "")
	e.status(http.StatusOK, answer, body)
	var doc struct {
		Paths map[string]map[string]struct {
			Security  []map[string][]string
			Responses map[string]struct{ Content map[string]any }
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	op := doc.Paths["/api/v1/backup"]["get"]
	if len(op.Security) != 1 || op.Security[0]["admin"] == nil || op.Responses["200"].Content["application/octet-stream"] == nil || len(op.Responses["200"].Content) != 1 ||
		op.Responses["429"].Content == nil || op.Responses["507"].Content == nil {
		t.Errorf("%+v", op)
	}
}
