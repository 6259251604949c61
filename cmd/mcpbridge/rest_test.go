package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpbridge/api/credential"
	"mcpbridge/api/rest"
	"mcpbridge/api/wire"
	"mcpbridge/store"
)

const adminToken = "an-administrators-own-token-of-enough-characters"

// provisioning is a server that has the REST API and nothing else.
func provisioning(t *testing.T) *httptest.Server {
	t.Helper()
	st := store.NewMemory(1)
	if _, err := st.Acquire(t.Context(), 0, "test"); err != nil {
		t.Fatal(err)
	}
	errDenied := errors.New("no credential")
	server := httptest.NewServer(rest.New(rest.Config{
		Store:     st,
		Epoch:     func(store.Shard) store.Epoch { return 1 },
		PublicURL: "https://bridge.example",
		Authorize: func(r *http.Request) (rest.Actor, error) {
			if r.Header.Get("Authorization") != "Bearer "+adminToken {
				return rest.Actor{}, errDenied
			}
			return rest.Actor{Admin: true}, nil
		},
		Fault: func(err error) wire.Fault {
			switch {
			case errors.Is(err, store.ErrNotFound):
				return wire.Fault{Status: http.StatusNotFound, Message: "no such bridge"}
			case errors.Is(err, errDenied):
				return wire.Fault{Status: http.StatusUnauthorized, Message: "no credential"}
			}
			return wire.Fault{Status: http.StatusInternalServerError, Message: "internal error"}
		},
	}))
	t.Cleanup(server.Close)
	return server
}

func TestBridgeCommandsProvision(t *testing.T) {
	server := provisioning(t)
	t.Setenv("MCPBRIDGE_SERVER", server.URL+"/")
	t.Setenv("MCPBRIDGE_ADMIN_TOKEN", adminToken)

	o := run(t.Context(), "", "bridge", "create", "--name", "Ada's", "--owner", "ada", "--policy", `{"names":"reject"}`, "-o", "json")
	o.want(t, exitOK, `\{.*\}\n`, ``)
	var made bridgeRecord
	if err := json.Unmarshal([]byte(o.stdout), &made); err != nil {
		t.Fatal(err)
	}
	if _, _, err := credential.Parse(made.ClientToken); err != nil {
		t.Fatalf("client token: %v", err)
	}
	if made.MCPURL != "https://bridge.example/b/"+made.ID+"/mcp" || string(made.Policy) != `{"names":"reject"}` {
		t.Errorf("%+v", made)
	}

	run(t.Context(), "", "bridge", "create").want(t, exitOK,
		`id +\w{26}\n.*MCP URL +https://\S+\n.*client token +mcpb_cli_\w+\nprovider token +mcpb_prv_\w+\n`, ``)
	run(t.Context(), "", "bridge", "show", made.ID).want(t, exitOK,
		`id +`+made.ID+`\nname +Ada's\nowner +ada\npolicy +\{"names":"reject"\}\ncreated .*`, ``)
	run(t.Context(), "", "bridge", "update", made.ID, "--owner", "", "--policy", `{"instances":"single"}`).want(t, exitOK,
		`id +`+made.ID+`\nname +Ada's\npolicy +\{"instances":"single","names":"reject"\}\ncreated .*`, ``)
	run(t.Context(), "", "bridge", "update", made.ID, "--owner", "ada", "--policy", `{"instances":"few"}`).want(t, exitFailed,
		``, `mcpbridge: 422 .*body\.policy\.instances.*\n`)
	run(t.Context(), "", "bridge", "update", made.ID, "--owner", "ada").want(t, exitOK, `.*owner +ada\n.*`, ``)
	o = run(t.Context(), "", "bridge", "list")
	o.want(t, exitOK, `ID +CREATED +OWNER +NAME\n.*`+made.ID+` .* ada +Ada's\n.*`, ``)
	if lines := strings.Count(o.stdout, "\n"); lines != 3 || strings.Contains(o.stdout, "mcpb_") {
		t.Errorf("list: %s", o.stdout)
	}
	run(t.Context(), "", "bridge", "list", "-o", "json").want(t, exitOK, `\{"bridges":\[\{.*\},\{.*\}\]\}\n`, ``)
	run(t.Context(), "", "bridge", "delete", made.ID, "never-was").want(t, exitFailed,
		`deleted `+made.ID+`\n`, `mcpbridge: never-was: 404 Not Found: no such bridge; path\.bridge: no such bridge\n`)
	run(t.Context(), "", "bridge", "show", made.ID).want(t, exitFailed, ``, `mcpbridge: 404 Not Found.*`)
}

func TestListReadsEveryPage(t *testing.T) {
	server := provisioning(t)
	t.Setenv("MCPBRIDGE_SERVER", server.URL)
	t.Setenv("MCPBRIDGE_TOKEN", adminToken)
	flags := adminFlags{Server: server.URL, Token: adminToken}
	for range 201 {
		if _, err := flags.do(t.Context(), http.MethodPost, "/api/v1/bridges", struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	o := run(t.Context(), "", "bridge", "list")
	if lines := strings.Count(o.stdout, "\n"); lines != 202 {
		t.Errorf("%d lines, want a head and 201 bridges", lines)
	}
}

func TestRefusalSaysWhatToDo(t *testing.T) {
	server := provisioning(t)
	o := run(t.Context(), "", "bridge", "list", "--server", server.URL, "--token", "wrong-and-secret")
	o.want(t, exitFailed, ``, `mcpbridge: 401 Unauthorized: .*--token or MCPBRIDGE_TOKEN\n`)
	if strings.Contains(o.stderr, "wrong-and-secret") {
		t.Errorf("the token is shown: %s", o.stderr)
	}
	server.Close()
	run(t.Context(), "", "bridge", "list", "--server", server.URL).want(t, exitFailed, ``,
		`mcpbridge: cannot reach http://127\.0\.0\.1:\d+/api/v1/bridges: .*refused\n`)
}

func TestCredentialFollowsNoRedirect(t *testing.T) {
	var asked bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	run(t.Context(), "", "bridge", "list", "--server", server.URL, "--token", adminToken).
		want(t, exitFailed, ``, `mcpbridge: 307 Temporary Redirect\n`)
	run(t.Context(), "", "tools", server.URL+"/b/x", "--token", adminToken).
		want(t, exitFailed, ``, `mcpbridge: 307 Temporary Redirect\n`)
	if asked {
		t.Error("the redirect was followed")
	}
}

func TestHealthcheckAsksReadyz(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked %s", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	run(t.Context(), "", "healthcheck", "--server", server.URL).want(t, exitOK, ``, ``)
	status = http.StatusServiceUnavailable
	run(t.Context(), "", "healthcheck", "--server", server.URL).want(t, exitFailed, ``, `mcpbridge: 503 Service Unavailable\n`)
}
