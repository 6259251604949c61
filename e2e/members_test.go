package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// From an empty directory to 50 members with a URL each by one documented script, in less
// than two minutes; each member's token opens their bridge and nobody else's.
func TestFiftyMembersByOneScript(t *testing.T) {
	begun := time.Now()
	s := serve(t)
	admin := s.find(s.stderr, shownOnce)
	script, err := filepath.Abs("../deploy/members.sh")
	if err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	for n := range 50 {
		fmt.Fprintf(&names, "Member %d O'Neill\n", n)
	}
	members := func() [][]string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // some hundred processes
		defer cancel()
		cmd := exec.CommandContext(ctx, script, "team")
		cmd.Env = append(os.Environ(), "MCPBRIDGE_SERVER="+s.url(""), "MCPBRIDGE_TOKEN="+admin, "MCPBRIDGE_PROGRAM="+binary)
		cmd.Stdin = strings.NewReader(names.String())
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		var rows [][]string
		for line := range strings.Lines(string(out)) {
			rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		}
		return rows
	}
	rows := members()
	took := time.Since(begun)
	t.Logf("%d members in %v", len(rows), took)
	if len(rows) != 50 {
		t.Fatalf("%d members", len(rows))
	}
	for n, row := range rows {
		if len(row) != 6 || row[0] != fmt.Sprintf("Member %d O'Neill", n) || row[2] != s.mcpURL(row[1]) || row[4] != s.socketURL(row[1]) ||
			!strings.HasPrefix(row[3], "mcpb_cli_") || !strings.HasPrefix(row[5], "mcpb_prv_") {
			t.Fatalf("member %d: %q", n, row)
		}
	}
	for n, row := range rows {
		for m, other := range rows {
			want := 404
			if n == m {
				want = 200
			}
			if a := s.do("GET", "/b/"+other[1]+"/health", "", bearer(row[3])...); a.status != want {
				t.Fatalf("member %d at the bridge of %d: %d", n, m, a.status)
			}
		}
	}

	// Once more, with one that is new.
	names.WriteString("Another\n")
	if again := members(); len(again) != 1 || again[0][0] != "Another" {
		t.Errorf("the second time: %q", again)
	}
}
