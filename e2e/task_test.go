package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpbridge/clients/provider"
)

// task is what a client sees of one.
type task struct {
	ResultType, TaskID, Status string
	Result                     json.RawMessage
}

// tasker sends a request of a client that knows tasks.
func (s *server) tasker(bridge, method, name, params string) task {
	s.t.Helper()
	a := s.do(http.MethodPost, "/b/"+bridge+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method, "Mcp-Name", name)
	var m struct{ Result task }
	if err := json.Unmarshal([]byte(a.body), &m); err != nil || m.Result.ResultType == "" {
		s.t.Fatalf("%s: %d %s", method, a.status, a.body)
	}
	return m.Result
}

// settled polls a task until it does not work any more.
func (s *server) settled(bridge, id string) task {
	s.t.Helper()
	ctx := patient(s.t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		k := s.tasker(bridge, "tasks/get", id, `"taskId":"`+id+`"`)
		if k.Status != "working" {
			return k
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("%v: the task is %+v", context.Cause(ctx), k)
		}
	}
}

// TestATaskOutlivesTheBridge: a task is started, its client goes, the bridge is killed
// and started again, and then the provider answers.
func TestATaskOutlivesTheBridge(t *testing.T) {
	t.Parallel()
	s := serve(t, "--open")
	release, working := make(chan struct{}), make(chan struct{}, 2)
	s.provide("b", "", provider.Tool{
		Name: "slow", Description: "Waits until it is told.", TaskSupport: provider.TaskOptional,
		Handle: func(context.Context, *provider.Call) (provider.Result, error) {
			working <- struct{}{}
			<-release
			return provider.Text("done after all"), nil
		},
	})
	k := s.tasker("b", "tools/call", "slow", `"name":"slow"`)
	if k.ResultType != "task" || k.Status != "working" {
		t.Fatalf("created as %+v", k)
	}
	await(t, working, "the call")
	for range 2 {
		s.restart()
		s.until("b", "the provider's return", offers)
		if now := s.tasker("b", "tasks/get", k.TaskID, `"taskId":"`+k.TaskID+`"`); now.Status != "working" {
			t.Fatalf("after a restart it is %+v", now)
		}
	}
	close(release)
	if now := s.settled("b", k.TaskID); now.Status != "completed" || !strings.Contains(string(now.Result), "done after all") {
		t.Errorf("it ended as %+v %s", now, now.Result)
	}
	s.restart()
	if now := s.settled("b", k.TaskID); !strings.Contains(string(now.Result), "done after all") {
		t.Errorf("after another restart it is %+v", now)
	}
	if len(working) != 0 {
		t.Error("the tool was called twice")
	}
}
