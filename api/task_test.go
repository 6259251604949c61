package api_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpbridge/session"
)

const taskTool = `{"name":"slow","description":"d","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}`

// tasksMeta is what a client says that knows tasks, and can be asked.
const tasksMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// tasker sends a request of a client that knows tasks.
func (w *world) tasker(bridge, method, name, params string) answer {
	w.t.Helper()
	body, headers := taskRequest(method, name, params)
	return w.post(bridge, body, headers...)
}

func taskRequest(method, name, params string) (body string, headers []string) {
	if params != "" {
		params += ","
	}
	headers = []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		headers = append(headers, "Mcp-Name", name)
	}
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + tasksMeta + `}}`, headers
}

// shown is a task as clients see it.
type shown struct {
	ResultType, TaskID, Status, StatusMessage string
	CreatedAt, LastUpdatedAt                  time.Time
	TTLMs, PollIntervalMs                     int64
	Result, Error                             json.RawMessage
	InputRequests                             map[string]json.RawMessage
}

func readTask(t *testing.T, a answer) (k shown) {
	t.Helper()
	var m struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal([]byte(a.body), &m); err != nil || m.Error != nil {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if err := json.Unmarshal(m.Result, &k); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return k
}

func (w *world) getTask(bridge, id string) shown {
	w.t.Helper()
	return readTask(w.t.(*testing.T), w.tasker(bridge, "tasks/get", id, `"taskId":"`+id+`"`))
}

// started calls the tool and returns its task and the provider's call.
func (w *world) started(p *peer) (shown, string) {
	w.t.Helper()
	got := make(chan answer, 1)
	go func() { got <- w.tasker("b", "tools/call", "slow", `"name":"slow","arguments":{}`) }()
	id := p.want("callTool").CallID
	k := readTask(w.t.(*testing.T), <-got)
	if k.ResultType != "task" || k.Status != "working" || k.Result != nil || k.TaskID == "" || k.TTLMs <= 0 || k.PollIntervalMs <= 0 || k.CreatedAt.IsZero() {
		w.t.Fatalf("created as %+v", k)
	}
	return k, id
}

func TestATasksResultIsFetchedLater(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(taskTool)
	k, id := w.started(p)
	p.send(`{"type":"progress","callId":"` + id + `","progress":1,"message":"half"}`)
	p.result(id, `{"content":[{"type":"text","text":"9007199254740993"}],"n":9007199254740993,"isError":true}`)
	now := w.getTask("b", k.TaskID)
	for now.Status == "working" { // the provider's answer is on its way
		now = w.getTask("b", k.TaskID)
	}
	if now.ResultType != "complete" || now.Status != "completed" || string(now.Result) != `{"content":[{"type":"text","text":"9007199254740993"}],"n":9007199254740993,"isError":true,"resultType":"complete"}` {
		t.Errorf("it ended as %+v, result %s", now, now.Result)
	}
	for _, c := range []struct{ method, want string }{
		{"tasks/get", `"code":-32602`},
		{"tasks/update", `"code":-32602`},
		{"tasks/cancel", `"code":-32602`},
		{"tasks/list", `"code":-32601`},
		{"tasks/result", `"code":-32601`},
	} {
		if a := w.tasker("b", c.method, "none", `"taskId":"none","inputResponses":{}`); !strings.Contains(a.body, c.want) {
			t.Errorf("%s of no task: %d %s", c.method, a.status, a.body)
		}
	}
	if a := w.tasker("b", "tasks/get", "other", `"taskId":"`+k.TaskID+`"`); a.status != 400 || !strings.Contains(a.body, "-32020") {
		t.Errorf("another name in the header: %d %s", a.status, a.body)
	}
}

func TestTasksAreForClientsThatKnowThem(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(taskTool, strings.NewReplacer("slow", "must", "optional", "required").Replace(taskTool))
	p.answers(func(frame) string { return done })
	const lacks = `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	for _, a := range []answer{
		w.modern("b", "tasks/get", "x", `"taskId":"x"`), w.modern("b", "tasks/update", "x", `"taskId":"x","inputResponses":{}`),
		w.modern("b", "tasks/cancel", "x", `"taskId":"x"`), w.modern("b", "tools/call", "must", `"name":"must"`),
		w.modern("b", "subscriptions/listen", "", `"notifications":{"taskIds":["x"]}`),
	} {
		if a.status != 400 || !strings.Contains(a.body, `"code":-32021`) || !strings.Contains(a.body, lacks) {
			t.Errorf("without the extension: %d %s", a.status, a.body)
		}
	}
	if a := w.modern("b", "tools/call", "slow", `"name":"slow"`); !strings.Contains(a.body, `"resultType":"complete"`) {
		t.Errorf("an optional one: %s", a.body)
	}
	if a := w.post("b", callBody("1", "must", "{}")); !strings.Contains(a.body, "done") {
		t.Errorf("an earlier revision: %s", a.body)
	}
	if a := w.tasker("b", "tools/call", "must", `"name":"must"`); !strings.Contains(a.body, `"resultType":"complete"`) || !strings.Contains(a.body, "done") {
		t.Errorf("what is answered at once needs no task: %s", a.body)
	}
	if a := w.modern("b", "server/discover", "", ""); !strings.Contains(a.body, `"extensions":{"io.modelcontextprotocol/tasks":{}}`) {
		t.Errorf("discover: %s", a.body)
	}
}

// frames reads the connection until its end, so that the bridge's pings find a reader.
func (p *peer) frames() <-chan frame {
	all := make(chan frame, 16)
	go func() {
		defer close(all)
		for {
			f, err := p.tryNext(context.Background())
			if err != nil {
				return
			}
			all <- f
		}
	}()
	return all
}

func TestACallThatLastsBecomesATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.provider("b", "p", "")
		p.register(tool("a"), strings.NewReplacer("slow", "never", "optional", "forbidden").Replace(taskTool))
		calls := p.frames()
		got := make(chan answer, 1)
		begun := time.Now()
		go func() { got <- w.tasker("b", "tools/call", "a", `"name":"a","arguments":{"x":1}`) }()
		id := (<-calls).CallID
		k := readTask(t, <-got)
		if d := time.Since(begun); d != 10*time.Second || k.ResultType != "task" {
			t.Errorf("after %v: %+v", d, k)
		}
		time.Sleep(time.Minute) // longer than a call's deadline
		p.send(`{"type":"toolError","callId":"` + id + `","error":{"code":-32001,"message":"m","data":[1]}}`)
		synctest.Wait()
		now := w.getTask("b", k.TaskID)
		if now.Status != "failed" || string(now.Error) != `{"code":-32001,"message":"m","data":[1]}` || now.Result != nil {
			t.Errorf("it ended as %+v %s", now, now.Error)
		}
		begun = time.Now()
		go func() { got <- w.tasker("b", "tools/call", "never", `"name":"never"`) }()
		id = (<-calls).CallID
		time.Sleep(30 * time.Second)
		p.result(id, done)
		if a := <-got; !strings.Contains(a.body, "done") || time.Since(begun) != 30*time.Second {
			t.Errorf("a tool that forbids tasks: %s", a.body)
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}

func TestATaskAsksThroughItsStatus(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(taskTool)
	k, id := w.started(p)
	body, headers := taskRequest("subscriptions/listen", "", `"notifications":{"taskIds":["`+k.TaskID+`","none"]}`)
	events := w.stream("POST", w.mcpURL("b"), body, headers...)
	if e := events.want(""); !strings.Contains(e, `"taskIds":["`+k.TaskID+`"]`) {
		t.Fatalf("acknowledged %s", e)
	}
	if e := events.want(""); !strings.Contains(e, `"method":"notifications/tasks"`) || !strings.Contains(e, `"status":"working"`) {
		t.Errorf("first told %s", e)
	}
	p.result(id, `{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"m"}},"why":{"method":"elicitation/create","params":{}}},"requestState":"s"}`)
	if e := events.want(""); !strings.Contains(e, `"status":"input_required","createdAt"`) || !strings.Contains(e, `"who":{"method":"elicitation/create","params":{"message":"m"}}`) ||
		!strings.Contains(e, "subscriptionId") {
		t.Errorf("then told %s", e)
	}
	if a := w.post("b", strings.Replace(bodyOf(taskRequest("tasks/get", k.TaskID, `"taskId":"`+k.TaskID+`"`)), `"elicitation":{},`, "", 1),
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tasks/get", "Mcp-Name", k.TaskID); a.status != 400 || !strings.Contains(a.body, "-32021") {
		t.Errorf("a client that cannot be asked: %d %s", a.status, a.body)
	}
	update := func(responses string) {
		t.Helper()
		if a := w.tasker("b", "tasks/update", k.TaskID, `"taskId":"`+k.TaskID+`","inputResponses":`+responses); !strings.Contains(a.body, `"result":{"resultType":"complete","_meta"`) {
			t.Errorf("tasks/update: %s", a.body)
		}
	}
	update(`{"who":{"action":"accept"},"nobody":{}}`)
	if now := w.getTask("b", k.TaskID); now.Status != "input_required" || len(now.InputRequests) != 1 || now.InputRequests["why"] == nil {
		t.Errorf("after one answer %+v", now)
	}
	update(`{"why":{"action":"decline"}}`)
	f := p.want("callTool")
	if !strings.Contains(f.raw, `"inputResponses":{"who":{"action":"accept"},"why":{"action":"decline"}}`) || !strings.Contains(f.raw, `"requestState":"s"`) {
		t.Errorf("called again with %s", f.raw)
	}
	p.result(f.CallID, done)
	for e := events.want(""); !strings.Contains(e, `"status":"completed"`); e = events.want("") {
		if !strings.Contains(e, `"method":"notifications/tasks"`) {
			t.Errorf("told %s", e)
		}
	}
	for _, bad := range []string{`[]`, `{"who":1}`, `null`} {
		if a := w.tasker("b", "tasks/update", k.TaskID, `"taskId":"`+k.TaskID+`","inputResponses":`+bad); !strings.Contains(a.body, `"code":-32602`) {
			t.Errorf("responses %s: %s", bad, a.body)
		}
	}
}

func bodyOf(body string, _ []string) string { return body }

func TestATaskIsCancelledAtTheProvider(t *testing.T) {
	w := start(t)
	p := w.provider("b", "p", "")
	p.register(taskTool)
	k, id := w.started(p)
	for range 2 {
		if a := w.tasker("b", "tasks/cancel", k.TaskID, `"taskId":"`+k.TaskID+`"`); !strings.Contains(a.body, `"result":{"resultType":"complete","_meta"`) {
			t.Errorf("tasks/cancel: %s", a.body)
		}
	}
	if f := p.want("cancelCall"); f.CallID != id {
		t.Errorf("told %s", f.raw)
	}
	if now := w.getTask("b", k.TaskID); now.Status != "cancelled" {
		t.Errorf("it is %+v", now)
	}
}

// TestATaskSurvivesClientBridgeAndConnection: the client goes, the bridge is restarted,
// the provider resumes and answers, and a client that comes back has the result.
func TestATaskSurvivesClientBridgeAndConnection(t *testing.T) {
	w := start(t)
	p, welcome := w.greeted("b", "p", "")
	p.register(taskTool)
	k, id := w.started(p)
	w.restart()
	p, _ = w.again("b", "p", welcome)
	if now := w.getTask("b", k.TaskID); now.Status != "working" {
		t.Fatalf("after the restart it is %+v", now)
	}
	p.result(id, `{"content":[],"late":true}`)
	now := w.getTask("b", k.TaskID)
	for now.Status == "working" {
		now = w.getTask("b", k.TaskID)
	}
	if !strings.Contains(string(now.Result), `"late":true`) {
		t.Errorf("it ended as %+v", now)
	}
}

func TestATasksSeedProviderThatLeavesEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble)
		p := w.dial("/b/b/provider") // says no hello, so it cannot resume
		p.send(`{"type":"registerTools","tools":[` + taskTool + `]}`)
		synctest.Wait()
		k, _ := w.started(p)
		_ = p.ws.CloseNow()
		synctest.Wait()
		now := w.getTask("b", k.TaskID)
		if now.Status != "completed" || !strings.Contains(string(now.Result), "outcome is unknown") || !strings.Contains(string(now.Result), `"isError":true`) {
			t.Errorf("it ended as %+v %s", now, now.Result)
		}
		w.end()
	})
}

// TestATaskHasADeadline: the client's or the tool's own, or the longest that there is. A
// call for which there is no room among the tasks has that of any call.
func TestATaskHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, inBubble, withLimits(session.Limits{Tasks: 2}))
		p := w.provider("b", "p", "")
		p.register(taskTool)
		calls := p.frames()
		call := func(query string) answer {
			got := make(chan answer, 1)
			body, headers := taskRequest("tools/call", "slow", `"name":"slow"`)
			go func() {
				got <- w.do("POST", w.mcpURL("b")+query, body, append(headers, "Content-Type", "application/json")...)
			}()
			for f := <-calls; f.Type != "callTool"; f = <-calls {
			}
			return <-got
		}
		short, long := readTask(t, call("?timeout=5")), readTask(t, call(""))
		begun := time.Now()
		if a := call(""); !strings.Contains(a.body, "deadline passed") || time.Since(begun) != time.Minute {
			t.Errorf("beyond the bound, after %v: %s", time.Since(begun), a.body)
		}
		if now := w.getTask("b", short.TaskID); now.Status != "completed" || !strings.Contains(string(now.Result), "deadline passed") {
			t.Errorf("with a deadline of its own it is %+v", now)
		}
		if now := w.getTask("b", long.TaskID); now.Status != "working" {
			t.Errorf("without one it is %+v", now)
		}
		_ = p.ws.CloseNow()
		w.end()
	})
}
