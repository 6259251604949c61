package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
)

// scriptTourist is a client of clients/tour.mjs.
type scriptTourist struct{ *scriptClient }

func (c scriptTourist) request(ctx context.Context, method string, params any) (raw json.RawMessage, err error) {
	return raw, c.do(ctx, method, map[string]any{"params": params}, &raw)
}

func (c scriptTourist) leave() error { return c.close() }

func scriptTour(library string) func(testing.TB, *sightings, []string) tourist {
	return func(t testing.TB, seen *sightings, target []string) tourist {
		t.Helper()
		return scriptTourist{script("tour.mjs", target...)(t, library, seen).(*scriptClient)}
	}
}

// tourists are the clients of the tours.
var tourists = map[string]func(testing.TB, *sightings, []string) tourist{
	"typescript-sdk 1":      scriptTour("sdk1"),
	"typescript-sdk 2":      scriptTour("client2-legacy"),
	"typescript-sdk 2 auto": scriptTour("client2-auto"),
	"go-sdk":                goTour(""),
	"go-sdk 2025-11-25":     goTour("2025-11-25"),
}

// step is one request of a tour.
type step struct {
	name   string
	method string
	params any
	told   []string // the notifications that come with it; others are not looked at
}

// object is a JSON object in short.
type object = map[string]any

func call(tool string, arguments object, told ...string) step {
	return step{tool, "tools/call", object{"name": tool, "arguments": arguments}, told}
}

// named is a step under another name.
func named(name string, s step) step {
	s.name = name
	return s
}

func list(method string) step { return step{method, method, object{}, nil} }

func prompt(name string, arguments object) step {
	params := object{"name": name}
	if arguments != nil {
		params["arguments"] = arguments
	}
	return step{name, "prompts/get", params, nil}
}

func read(uri string) step { return step{uri, "resources/read", object{"uri": uri}, nil} }

func complete(name string, ref object, argument, value string, known object) step {
	params := object{"ref": ref, "argument": object{"name": argument, "value": value}}
	if known != nil {
		params["context"] = object{"arguments": known}
	}
	return step{name, "completion/complete", params, nil}
}

var connecting = step{"connect", "connect", object{"answers": answers}, nil}

const progressTold, logTold, updateTold, resourcesTold = "notifications/progress", "notifications/message",
	"notifications/resources/updated", "notifications/resources/list_changed"

// difference is one that is meant: where its pattern matches, and why.
type difference struct{ pattern, why string }

// uses are the lists, and by what the offers in them are used: in a request of the
// method, the member of the params names the offer's own.
var uses = map[string]struct{ key, method, member string }{
	"tools/list":               {"name", "tools/call", "name"},
	"prompts/list":             {"name", "prompts/get", "name"},
	"resources/list":           {"uri", "resources/read", "uri"},
	"resources/templates/list": {"uriTemplate", "completion/complete", "ref"},
}

// unused are the offers that a tour lists and none of its steps uses.
func unused(tour map[string]any, steps []step) (all []string) {
	for _, listing := range steps {
		use, isList := uses[listing.method]
		answer, _ := tour[listing.name].(map[string]any)
		offers, _ := answer["result"].(map[string]any)
		if isList && len(offers) == 0 {
			all = append(all, "all of "+listing.name)
		}
		for _, offer := range offers {
			offer, _ := offer.(map[string]any)
			if isList && !slices.ContainsFunc(steps, func(s step) bool {
				params, _ := s.params.(object)
				named := params[use.member]
				if ref, ok := named.(object); ok {
					named = ref["uri"]
				}
				return s.method == use.method && named == offer[use.key]
			}) {
				all = append(all, fmt.Sprintf("%v of %s", offer[use.key], listing.name))
			}
		}
	}
	return all
}

// same compares a server used directly with the same server behind mcpbridge, for
// each client: the command of the server, and what is done with it.
func same(t *testing.T, prepare func(*testing.T) ([]string, []step), meant []difference) {
	t.Helper()
	if err := packages(); err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	s := serve(t, "--open")
	var mu sync.Mutex
	met := map[int]bool{}
	t.Run("clients", func(t *testing.T) {
		for name, client := range tourists {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				command, steps := prepare(t)
				bridge := regexp.MustCompile(`\W`).ReplaceAllString(name, "-")
				start(t, append([]string{"run", "--url", s.socketURL(bridge), "--"}, command...)...)
				s.until(bridge, "the server's tools", offers)
				seen := newSightings()
				direct := take(t, client(t, seen, command), seen, steps)
				if left := unused(direct, steps); left != nil {
					t.Errorf("offered and not used: %q", left)
				}
				seen = newSightings()
				bridged := take(t, client(t, seen, []string{s.mcpURL(bridge)}), seen, steps)
				for _, d := range differences("", direct, bridged) {
					i := slices.IndexFunc(meant, func(m difference) bool { return regexp.MustCompile(m.pattern).MatchString(name + " " + d) })
					if i < 0 {
						t.Error(d)
						continue
					}
					mu.Lock()
					met[i] = true
					mu.Unlock()
				}
			})
		}
	})
	for i, m := range meant {
		if !met[i] && !t.Failed() {
			t.Errorf("there is no such difference any more: %s (%s)", m.pattern, m.why)
		}
	}
}

// installed is the command that npx would run.
func installed(t *testing.T, pkg string, args ...string) []string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(filepath.Join("node_modules", "@modelcontextprotocol", pkg, "dist", "index.js"))
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{node, path}, args...)
}
