package e2e

import (
	"path/filepath"
	"testing"
	"time"
)

// TestForeignServersAskForeignClients: a stdio server of the sessions' era, behind run,
// elicits, samples and lists roots; clients of every library and revision answer.
func TestForeignServersAskForeignClients(t *testing.T) {
	if err := packages(); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(filepath.Join("clients", "server1.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	for name, lib := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "--open")
			start(t, "run", "--url", s.socketURL("asks"), "--", "node", path)
			s.until("asks", "the server's tools", offers)
			c := lib.client(t, s.mcpURL("asks"), newSightings())
			if _, err := c.connect(patient(t)); err != nil {
				t.Fatal(err)
			}
			for _, tool := range []string{"in_turn", "at_once"} {
				from := time.Now()
				got, err := c.call(patient(t), tool, nil)
				if want := "accept Zoë, something, file:///home/zoe"; err != nil || got != want {
					t.Errorf("%s: %q, %v, want %q", tool, got, err, want)
				}
				t.Logf("%s took %v", tool, time.Since(from).Round(time.Millisecond))
			}
		})
	}
}
