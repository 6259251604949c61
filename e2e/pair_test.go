package e2e

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A code opens the bridge to one provider, which keeps the token that it got for later
// runs, in a file of its user's alone.
func TestRunPairsWithACode(t *testing.T) {
	s := serve(t)
	admin := s.find(s.stderr, shownOnce)
	b := createBridge(t, s, admin)
	config := filepath.Join(t.TempDir(), "config")
	t.Setenv("XDG_CONFIG_HOME", config)

	o := run(t, "pair", b.ID, "--name", "laptop", "--server", s.url(""), "--token", admin, "-o", "json")
	var made struct{ Code string }
	if err := json.Unmarshal([]byte(o.stdout), &made); err != nil || o.status != 0 || made.Code == "" {
		t.Fatalf("pair: %+v, %v", o, err)
	}
	run(t, "pair", b.ID, "--server", s.url(""), "--token", admin).want(t, 0, `code +\w{5}-\w{5}\ngood until .*\n`, ``)
	run(t, "pair", "none", "--server", s.url(""), "--token", admin).want(t, 1, ``, `mcpbridge: 404 [^\n]*\n`)

	child := append([]string{"--"}, childArgs()...)
	p := start(t, append([]string{"run", "--pair", made.Code, "--server", s.url("")}, child...)...)
	s.until(b.ID, "the child's tools", offers, bearer(b.ClientToken)...)
	if text := p.stderr.String(); !strings.Contains(text, "Paired; from now on: mcpbridge run --url "+b.ProviderURL) {
		t.Errorf("it says %s", text)
	}
	p.stop()
	s.until(b.ID, "the child's end", away, bearer(b.ClientToken)...)

	files := 0
	_ = filepath.WalkDir(config, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		info, err := d.Info()
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s has mode %o", path, mode)
		}
		if d.IsDir() {
			return nil
		}
		files++
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), "mcpb_prv_") {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	if files != 1 {
		t.Errorf("%d files are kept, want 1", files)
	}

	// The code is used up, and not needed any more.
	args := append([]string{"run", "--pair", made.Code, "--server", s.url("")}, child...)
	run(t, args...).want(t, 1, ``, `mcpbridge: 404 [^\n]*no such code[^\n]*\n`)
	again := start(t, append([]string{"run", "--url", b.ProviderURL}, child...)...)
	s.until(b.ID, "the child's return", offers, bearer(b.ClientToken)...)
	again.stop()
	if strings.Contains(p.stderr.String()+again.stderr.String()+s.stderr.String(), "mcpb_prv_") || strings.Contains(s.stderr.String(), made.Code) {
		t.Error("a token or the code is in a log")
	}

	run(t, append([]string{"run"}, child...)...).want(t, 2, ``, `mcpbridge: .*--url or --pair.*`)
	run(t, append([]string{"run", "--pair", "x", "--token", "y"}, child...)...).want(t, 2, ``, `mcpbridge: .*no --token.*`)
}
