package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"mcpbridge/clients/provider"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	run(t, "version").want(t, 0, `mcpbridge `+version+` commit `+commit+` `+runtime.Version()+` \w+/\w+\n`, ``)
}

func TestWrongUseIsStatus2(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"nothing":           {},
		"unknown command":   {"fly"},
		"unknown flag":      {"serve", "--fly"},
		"no tool":           {"call", "b"},
		"no JSON object":    {"call", "b", "t", "[1]"},
		"no URL":            {"tools", "ftp://host/b/x"},
		"output":            {"tools", "b", "-o", "xml"},
		"open to the world": {"serve", "--open", "--listen", "0.0.0.0:0"},
		"no bridge":         {"bridge", "show"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, args...).want(t, 2, ``, `mcpbridge: [^\n]+\n.*`)
		})
	}
}

func TestUnreachableServerIsOneSentence(t *testing.T) {
	t.Parallel()
	nobody := "http://" + reserve(t)
	for _, args := range [][]string{
		{"tools", "b"},
		{"call", "b", "t"},
		{"bridge", "list"},
		{"bridge", "show", "b"},
		{"bridge", "create"},
		{"bridge", "delete", "b"},
	} {
		run(t, append(args, "--server", nobody)...).want(t, 1, ``, `mcpbridge: (?:b: )?cannot reach `+nobody+`[^\n]*\n`)
	}
}

// exact has what reading and writing it anew would change.
const exact = `{"content":[{"type":"text","text":"one\ntwo \u00e6"},{"type":"image","data":"aGVsbG8=","mimeType":"image/png"}], "x":9007199254740993}`

func TestToolsAndCall(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	arrived := make(chan struct{}, 1)
	arrived <- struct{}{}
	result := func(r provider.Result, err error) provider.Handler {
		return func(context.Context, *provider.Call) (provider.Result, error) { return r, err }
	}
	const raw = `{"name":"exact","description":"Says it\nin two lines.","inputSchema":{"type":"object","x":9007199254740993}}`
	s.provide("home", "",
		greet("greet"), steps(arrived),
		provider.Tool{Raw: json.RawMessage(raw), Handle: result(provider.Result{Raw: json.RawMessage(exact)}, nil)},
		provider.Tool{Name: "fails", Handle: result(provider.Failure("the disk is full"), nil)},
		provider.Tool{Name: "refuses", Handle: result(provider.Result{}, &provider.Error{Code: -32001, Message: "not today"})},
	)
	at := []string{"--server", s.url("")}
	cli := func(args ...string) outcome { t.Helper(); return run(t, append(args, at...)...) }

	cli("tools", "home").want(t, 0, `NAME +DESCRIPTION\nexact +Says it\nfails\ngreet +Greets somebody\.\nrefuses\nsteps +Takes three steps\.\n`, ``)
	o := cli("tools", "home", "-o", "json")
	if o.status != 0 || o.stderr != "" || !strings.Contains(o.stdout, raw) {
		t.Errorf("tools -o json: %+v, want %s in it", o, raw)
	}
	var all []definition
	if err := json.Unmarshal([]byte(o.stdout), &all); err != nil || len(all) != 5 {
		t.Errorf("tools -o json: %v, %d tools", err, len(all))
	}

	cli("call", "home", "greet", `{"name":"you"}`).want(t, 0, `Hello, you!\n`, ``)
	run(t, "call", s.mcpURL("home"), "greet", `{"name":"you"}`).want(t, 0, `Hello, you!\n`, ``)
	cli("call", "home", "exact").want(t, 0, `one\ntwo æ\n\[image image/png, 5 bytes; -o json prints it\]\n`, ``)
	if o := cli("call", "home", "exact", "-o", "json"); o != (outcome{0, exact + "\n", ""}) {
		t.Errorf("call -o json: %+v, want %s", o, exact)
	}
	cli("call", "home", "steps").want(t, 0, `arrived\n`, `progress 1/3 left\nprogress 2/3 right\nprogress 3/3 left again\n`)
	cli("call", "home", "fails").want(t, 1, `the disk is full\n`, `mcpbridge: [^\n]+\n`)
	cli("call", "home", "refuses").want(t, 1, ``, `mcpbridge: not today \(-32001\)\n`)
	cli("call", "home", "absent").want(t, 1, ``, `mcpbridge: [^\n]*tool[^\n]*\(-32602\)\n`)
	cli("call", "home", "greet", `{"name":7}`).want(t, 1, `[^\n]*name[^\n]*\n`, `mcpbridge: [^\n]+\n`) // against its schema
	s.stop()
}

func TestCallReadsArgumentsFromStandardInput(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	s.provide("home", "", greet("greet"))
	p := start(t, "call", s.mcpURL("home"), "greet", "-")
	if _, err := p.stdin.Write([]byte(`{"name":"you"}`)); err != nil {
		t.Fatal(err)
	}
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	p.outcome().want(t, 0, `Hello, you!\n`, ``)
	s.stop()
}

// Ctrl-C ends a call, for the provider too.
func TestInterruptedCallIsCancelled(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	begun, ended := make(chan struct{}, 1), make(chan error, 1)
	s.provide("home", "", provider.Tool{Name: "wait", Handle: func(ctx context.Context, _ *provider.Call) (provider.Result, error) {
		begun <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return provider.Result{}, context.Cause(ctx)
	}})
	p := start(t, "call", s.mcpURL("home"), "wait")
	await(t, begun, "the call")
	p.signal(os.Interrupt)
	p.outcome().want(t, 1, ``, `mcpbridge: cancelled: [^\n]*\n`)
	if err := await(t, ended, "the cancellation"); !errors.Is(err, provider.ErrCancelled) {
		t.Errorf("the provider's call ended with %v, want %v", err, provider.ErrCancelled)
	}
	s.until("home", "the end of the call", func(h health) bool { return h.CallsInFlight == 0 })
	s.stop()
}

func TestBridgeCommands(t *testing.T) {
	t.Parallel()
	s := serve(t)
	admin := s.find(s.stderr, shownOnce)
	cli := func(args ...string) outcome {
		t.Helper()
		return run(t, append(args, "--server", s.url(""), "--token", admin)...)
	}
	cli("bridge", "list").want(t, 0, `ID +TENANT +CREATED +OWNER +NAME\n`, ``)
	b := createBridge(t, s, admin)
	o := cli("bridge", "create", "--name", "second", "--owner", "somebody")
	o.want(t, 0, `id +\S+\n.*MCP URL +http://.*/mcp\n.*provider URL +ws://.*/provider\n.*client token +\S+\nprovider token +\S+\n`, ``)
	second := strings.Fields(o.stdout)[1]

	cli("bridge", "list").want(t, 0, `ID .*`, ``)
	var list struct{ Bridges []created }
	if o := cli("bridge", "list", "-o", "json"); json.Unmarshal([]byte(o.stdout), &list) != nil || len(list.Bridges) != 2 {
		t.Errorf("bridge list -o json: %+v", o)
	}
	for _, listed := range list.Bridges {
		if listed.ClientToken != "" || listed.ProviderToken != "" {
			t.Error("a list shows tokens")
		}
	}
	cli("bridge", "show", b.ID).want(t, 0, `id +`+b.ID+`\nname +from outside\n.*MCP URL +`+b.MCPURL+`\n.*`, ``)
	if o := cli("bridge", "show", b.ID, "-o", "json"); strings.Contains(o.stdout, b.ClientToken) || !json.Valid([]byte(o.stdout)) {
		t.Errorf("bridge show -o json: %+v", o)
	}
	cli("bridge", "show", "absent").want(t, 1, ``, `mcpbridge: 404 [^\n]*\n`)
	cli("bridge", "delete", b.ID, second).want(t, 0, `deleted `+b.ID+`\ndeleted `+second+`\n`, ``)
	cli("bridge", "delete", b.ID).want(t, 1, ``, `mcpbridge: `+b.ID+`: 404 [^\n]*\n`)
	cli("bridge", "list").want(t, 0, `ID +TENANT +CREATED +OWNER +NAME\n`, ``)
	// Its tokens went with it.
	run(t, "tools", b.MCPURL, "--token", b.ClientToken).want(t, 1, ``, `mcpbridge: 401 [^\n]*\n`)
	s.stop()
}
