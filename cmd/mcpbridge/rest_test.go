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
			case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrInUse):
				return wire.Fault{Status: http.StatusConflict, Message: err.Error()}
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
		`id +`+made.ID+`\nname +Ada's\nowner +ada\ntenant +default\npolicy +\{"names":"reject"\}\ncreated .*`, ``)
	run(t.Context(), "", "bridge", "update", made.ID, "--owner", "", "--policy", `{"instances":"single"}`).want(t, exitOK,
		`id +`+made.ID+`\nname +Ada's\ntenant +default\npolicy +\{"instances":"single","names":"reject"\}\ncreated .*`, ``)
	run(t.Context(), "", "bridge", "update", made.ID, "--owner", "ada", "--policy", `{"instances":"few"}`).want(t, exitFailed,
		``, `mcpbridge: 422 .*body\.policy\.instances.*\n`)
	run(t.Context(), "", "bridge", "update", made.ID, "--owner", "ada").want(t, exitOK, `.*owner +ada\n.*`, ``)
	o = run(t.Context(), "", "bridge", "list")
	o.want(t, exitOK, `ID +TENANT +CREATED +OWNER +NAME\n.*`+made.ID+` +default .* ada +Ada's\n.*`, ``)
	if lines := strings.Count(o.stdout, "\n"); lines != 3 || strings.Contains(o.stdout, "mcpb_") {
		t.Errorf("list: %s", o.stdout)
	}
	run(t.Context(), "", "bridge", "list", "-o", "json").want(t, exitOK, `\{"bridges":\[\{.*\},\{.*\}\]\}\n`, ``)
	run(t.Context(), "", "bridge", "delete", made.ID, "never-was").want(t, exitFailed,
		`deleted `+made.ID+`\n`, `mcpbridge: never-was: 404 Not Found: no such bridge; path\.bridge: no such bridge\n`)
	run(t.Context(), "", "bridge", "show", made.ID).want(t, exitFailed, ``, `mcpbridge: 404 Not Found.*`)
}

func TestTokenKeyAndTenantCommands(t *testing.T) {
	server := provisioning(t)
	t.Setenv("MCPBRIDGE_SERVER", server.URL)
	t.Setenv("MCPBRIDGE_TOKEN", adminToken)
	command := func(args string) outcome { t.Helper(); return run(t.Context(), "", strings.Fields(args)...) }
	read := func(args string, v any) {
		t.Helper()
		o := command(args + " -o json")
		if err := json.Unmarshal([]byte(o.stdout), v); err != nil || o.status != exitOK {
			t.Fatalf("%s: %+v, %v", args, o, err)
		}
	}

	command("tenant create red --name Team").want(t, exitOK, `created red\n`, ``)
	command("tenant create red").want(t, exitFailed, ``, `mcpbridge: 409 .*\n`)
	command("tenant list").want(t, exitOK, `ID +CREATED +NAME\nred +\S+ \S+ +Team\n`, ``)
	command("tenant list -o json").want(t, exitOK, `\{"tenants":\[\{.*"id":"red".*\}\]\}\n`, ``)

	var b bridgeRecord
	read("bridge create --tenant red", &b)
	command("bridge create --tenant blue").want(t, exitFailed, ``, `mcpbridge: 422 .*there is no such tenant.*`)
	command("bridge list --tenant red").want(t, exitOK, `ID .*\n`+b.ID+` +red .*\n`, ``)
	command("bridge list --tenant default").want(t, exitOK, `ID .*\n`, ``)

	var k, next tokenRecord
	read("token create "+b.ID+" --kind provider --name laptop --expires-in 1h", &k)
	if kind, id, err := credential.Parse(k.Token); err != nil || kind != store.ProviderToken || id != k.ID || k.Expires == nil {
		t.Fatalf("token create: %+v, %v", k, err)
	}
	command("token create "+b.ID).want(t, exitOK, `id +\w{12}\nkind +client\ntoken +mcpb_cli_\w+\n`, ``)
	o := command("token list " + b.ID)
	o.want(t, exitOK, `ID +KIND +TENANT +EXPIRES +LAST USED +SCOPES +NAME\n.*`+k.ID+` +provider +\S+ \S+ +laptop\n.*`, ``)
	if lines := strings.Count(o.stdout, "\n"); lines != 5 || strings.Contains(o.stdout, "mcpb_") {
		t.Errorf("list: %s", o.stdout)
	}
	read("token rotate "+b.ID+" "+k.ID+" --overlap 0s", &next)
	if next.Name != "laptop" || next.ID == k.ID {
		t.Errorf("rotated: %+v", next)
	}
	command("token revoke "+b.ID+" "+next.ID+" "+k.ID).want(t, exitFailed, `revoked `+next.ID+`\n`, `mcpbridge: `+k.ID+`: 404 .*`)

	read("key create --tenant red --name script --scope bridges:read --scope tokens:write", &k)
	if kind, _, err := credential.Parse(k.Token); err != nil || kind != store.RESTKey || strings.Join(k.Scopes, " ") != "bridges:read tokens:write" {
		t.Fatalf("key create: %+v, %v", k, err)
	}
	command("key create --scope everything").want(t, exitUsage, ``, `mcpbridge: .*--scope.*`)
	command("key list --tenant red").want(t, exitOK, `ID .*\n`+k.ID+` +key +red .* bridges:read tokens:write +script\n`, ``)
	command("key list --tenant default").want(t, exitOK, `ID .*\n`, ``)
	read("key rotate "+k.ID, &next)
	command("key revoke "+k.ID+" "+next.ID).want(t, exitOK, `revoked `+k.ID+`\nrevoked `+next.ID+`\n`, ``)
	var forever tokenRecord
	read("key create --never-expires", &forever)
	if forever.ID == "" || forever.Expires != nil {
		t.Errorf("never expires: %+v", forever)
	}

	command("tenant delete red").want(t, exitFailed, ``, `mcpbridge: red: 409 .*\n`)
	command("bridge delete "+b.ID).want(t, exitOK, `deleted `+b.ID+`\n`, ``)
	command("tenant delete red").want(t, exitOK, `deleted red\n`, ``)
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
