package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mcpbridge/store"
)

// TestABackupOfARunningServerIsRestored: a backup that is taken while bridges are made
// has every bridge that was told before, and its tokens open the restored server.
func TestABackupOfARunningServerIsRestored(t *testing.T) {
	t.Setenv(adminTokenEnv, adminToken)
	home := t.TempDir()
	s, url := serve(t, filepath.Join(home, "data"))
	t.Setenv("MCPBRIDGE_SERVER", url)
	create := func() (b bridgeRecord) {
		o := run(s.ctx, "", "bridge", "create", "-o", "json")
		if err := json.Unmarshal([]byte(o.stdout), &b); err != nil {
			t.Errorf("%v: %+v", err, o)
		}
		return b
	}
	var told []bridgeRecord
	for range 20 {
		told = append(told, create())
	}
	var writers sync.WaitGroup
	taken := make(chan struct{})
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-taken:
					return
				default:
					create()
				}
			}
		})
	}
	file := filepath.Join(home, "backup.db")
	run(s.ctx, "", "backup", file).want(t, exitOK, `BUCKET +RECORDS +BYTES\n.*bridges +\d+ +\d+\n.*wrote: \S+/backup\.db, \d+ bytes, format 1\n`, ``)
	close(taken)
	writers.Wait()
	run(s.ctx, "", "backup", file).want(t, exitFailed, ``, `mcpbridge: \S+/backup\.db exists: choose another name, or move it away, or give --force\n`)
	run(s.ctx, "", "backup", file, "--force", "-o", "json").want(t, exitOK, `\{"file":"\S+/backup\.db",.*"faults":\[\],"more":0\}\n`, ``)
	run(s.ctx, "", "backup", file+"2", "--token", "wrong").want(t, exitFailed, ``, `mcpbridge: 401 .*`)
	run(s.ctx, "", "backup", file+"2", "--token", told[0].ClientToken).want(t, exitFailed, ``, `mcpbridge: 40[13] .*`)
	run(s.ctx, "", "check", filepath.Join(home, "data", store.FileName)).want(t, exitFailed, ``, `.*is in use by a running server.*`)
	run(s.ctx, "", "restore", file, "--data", filepath.Join(home, "data"), "--force").want(t, exitFailed, ``, `.*is in use by a running server: stop that one first\n`)
	left, err := filepath.Glob(filepath.Join(home, "*"))
	if info, err2 := os.Stat(file); err != nil || err2 != nil || len(left) != 2 || info.Mode().Perm() != 0o600 {
		t.Errorf("in the directory %v; %v, %v, %v", left, info, err, err2)
	}
	run(s.ctx, "", "check", file).want(t, exitOK, `.*sound: \S+/backup\.db, \d+ bytes, format 1\n`, ``)
	s.stop()

	data := filepath.Join(home, "restored")
	run(t.Context(), "", "restore", file, "--data", data).want(t, exitOK, `.*restored: \S+/mcpbridge\.db, \d+ bytes, format 1\n`, ``)
	run(t.Context(), "", "restore", file, "--data", data).want(t, exitFailed, ``, `mcpbridge: \S+/mcpbridge\.db exists: .*, or give --force\n`)
	run(t.Context(), "", "restore", file, "--data", data, "--force").want(t, exitOK, `.*restored: .*`, `The store that was there is now \S+\.before-\w+\n`)
	s, url = serve(t, data)
	t.Setenv("MCPBRIDGE_SERVER", url)
	for _, b := range told {
		run(s.ctx, "", "bridge", "show", b.ID).want(t, exitOK, `id +`+b.ID+`.*`, ``)
	}
	demo := start(t, "demo", "--url", strings.Replace(url, "http", "ws", 1)+"/b/"+told[0].ID+"/provider", "--token", told[0].ProviderToken, "--counter", filepath.Join(home, "counter"))
	demo.stderr.find(s.ctx, t, `tools=5 rejected=0`)
	run(s.ctx, "", "call", told[0].ID, "add", `{"a":1,"b":2}`, "--token", told[0].ClientToken).want(t, exitOK, `3\n`, ``)
	demo.stop()
	s.stop()
}

func TestCheckExitsWith1ForADamagedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b")
	if err := os.WriteFile(file, []byte(strings.Repeat("garbage!", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t.Context(), "", "check", file).want(t, exitFailed,
		`BUCKET .*\nfault: neither of its two meta pages is valid\ndamaged: .*\n`, `mcpbridge: the file \S+ is damaged: neither .*\n`)
	run(t.Context(), "", "check", file, "-o", "json").want(t, exitFailed, `\{.*"faults":\["neither.*"\],"more":0\}\n`, `.*damaged.*`)
	run(t.Context(), "", "restore", file, "--data", file+"-data").want(t, exitFailed, ``, `.*damaged.*`)
	run(t.Context(), "", "check", file+"-none").want(t, exitUsage, ``, `.*no such file.*`)
}

// TestABackupThatIsCutOffLeavesNothing: the server dies, or is another one.
func TestABackupThatIsCutOffLeavesNothing(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			fmt.Fprint(w, strings.Repeat("x", 5000))
		},
		"not a store": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello</html>") },
		"no length": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "hello")
			w.(http.Flusher).Flush()
		},
		"refused": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusInsufficientStorage)
			fmt.Fprint(w, `{"detail":"the server's disk is full"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			dir := t.TempDir()
			o := run(t.Context(), "", "backup", filepath.Join(dir, "b"), "--server", server.URL)
			if o.status != exitFailed || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 {
				t.Errorf("%+v", o)
			}
			if name == "cut off" && !strings.Contains(o.stderr, "it was cut off after 5000 of 100000 bytes") {
				t.Error(o.stderr)
			}
			if name == "refused" && !strings.Contains(o.stderr, "507 Insufficient Storage: the server's disk is full") {
				t.Error(o.stderr)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
			t.Log(o.stderr)
		})
	}
}
