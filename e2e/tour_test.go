package e2e

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// tourist is a client library that can use everything that a server offers.
type tourist interface {
	// request returns {"result":…} or {"error":{code, message, data}}.
	request(ctx context.Context, method string, params any) (json.RawMessage, error)
	leave() error
}

// note is a notification or a request of a server.
type note struct {
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

func noteOf(t testing.TB, v any) (n note) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err != nil {
		t.Errorf("%v in %s", err, text)
	}
	return n
}

// answers is what a client says when it is asked, by method.
var answers = map[string]any{
	"elicitation/create":     map[string]any{"action": "accept", "content": map[string]any{"name": "Ærø", "check": true, "integer": 7}},
	"sampling/createMessage": map[string]any{"role": "assistant", "model": "none", "content": map[string]any{"type": "text", "text": "sampled"}},
	"roots/list":             map[string]any{"roots": []any{map[string]any{"uri": "file:///home/tour", "name": "home"}}},
}

// take makes a tour: each step's answer, with what came with it, by its name.
func take(t *testing.T, client tourist, seen *sightings, steps []step) map[string]any {
	t.Helper()
	ctx := patient(t)
	all := map[string]any{}
	for _, s := range steps {
		raw, err := client.request(ctx, s.method, s.params)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatalf("%s: %v in %s", s.name, err, raw)
		}
		var told []any
		for waiting := slices.Clone(s.told); len(waiting) > 0; {
			select {
			case n := <-seen.told:
				if i := slices.Index(waiting, n.Method); i >= 0 {
					waiting = slices.Delete(waiting, i, i+1)
					told = append(told, map[string]any{"method": n.Method, "params": n.Params})
				}
			case <-ctx.Done():
				t.Fatalf("%s: %v while waiting for %q", s.name, context.Cause(ctx), waiting)
			}
		}
		if told != nil {
			v["told"] = told
		}
		var asked []any
		for len(seen.asked) > 0 {
			n := <-seen.asked
			if n.Method == "roots/list" { // servers also ask of their own accord, some time
				continue
			}
			asked = append(asked, map[string]any{"method": n.Method, "params": n.Params})
		}
		if asked != nil {
			v["asked"] = asked
		}
		all[s.name] = usual("", v)
	}
	if err := client.leave(); err != nil {
		t.Errorf("leaving: %v", err)
	}
	return all
}

// What is different each time:
var (
	// The server writes the time of day into its resources.
	clock = regexp.MustCompile(`\d{1,2}:\d\d:\d\d [AP]M`)
	// An elicitation by an error has a random ID.
	uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	// A file is written by each use of the server.
	written = regexp.MustCompile(`(?m)^(created|modified|accessed): .*$`)
	// A message of simulated logging has a random level.
	randomLevel = regexp.MustCompile(`^(Debug|Info|Notice|Warning|Error|Critical)-level message|^(Alert|Emergency)[ -]level[- ]message`)
)

// usual is a value without what is different each time, and without the order of
// lists, which mcpbridge sorts by name.
func usual(key string, v any) any {
	switch v := v.(type) {
	case string:
		if b, err := base64.StdEncoding.DecodeString(v); key == "blob" && err == nil && utf8.Valid(b) {
			return "the text " + usual("", string(b)).(string)
		}
		v = clock.ReplaceAllString(v, "TIME")
		v = written.ReplaceAllString(v, "$1: TIME")
		v = uuid.ReplaceAllString(v, "UUID")
		var members map[string]any
		if json.Unmarshal([]byte(v), &members) == nil && members["PATH"] != nil { // an environment, of a process with a folder of its own
			maps.DeleteFunc(members, func(name string, _ any) bool { return name == "PWD" })
			v = inJSON(members)
		}
		return v
	case []any:
		v = slices.Clone(v)
		named := map[string]any{}
		for i := range v {
			v[i] = usual("", v[i])
			if m, ok := v[i].(map[string]any); ok {
				if name, ok := m["name"].(string); ok {
					named[name] = m
				}
			}
		}
		if len(named) > 0 && len(named) == len(v) && key == "result" {
			return named
		}
		return v
	case map[string]any:
		v = maps.Clone(v)
		if data, ok := v["data"].(string); ok && randomLevel.MatchString(data) {
			v["data"], v["level"] = "RANDOM", "RANDOM"
		}
		for k := range v {
			if k == "progressToken" { // each library invents its own
				v[k] = "TOKEN"
			}
			v[k] = usual(k, v[k])
		}
		return v
	}
	return v
}

// differences are the paths at which two values differ, with both.
func differences(path string, a, b any) (all []string) {
	x, ok := a.(map[string]any)
	y, also := b.(map[string]any)
	if ok && also {
		keys := maps.Clone(x)
		maps.Copy(keys, y)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			u, has := x[k]
			v, too := y[k]
			switch {
			case !has:
				all = append(all, fmt.Sprintf("%s/%s: only through the bridge: %s", path, k, shortly(v)))
			case !too:
				all = append(all, fmt.Sprintf("%s/%s: only direct: %s", path, k, shortly(u)))
			default:
				all = append(all, differences(path+"/"+k, u, v)...)
			}
		}
		return all
	}
	if l, ok := a.([]any); ok {
		if m, ok := b.([]any); ok && len(l) == len(m) {
			for i := range l {
				all = append(all, differences(fmt.Sprintf("%s/%d", path, i), l[i], m[i])...)
			}
			return all
		}
	}
	if u, v := inJSON(a), inJSON(b); u != v {
		all = append(all, fmt.Sprintf("%s: direct %s, through the bridge %s", path, shortly(a), shortly(b)))
	}
	return all
}

func inJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func shortly(v any) string {
	text := inJSON(v)
	return text[:min(len(text), 300)] + strings.Repeat("…", cmp.Compare(len(text), 300)/2)
}
