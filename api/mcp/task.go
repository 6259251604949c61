package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"mcpbridge/api/wire"
	"mcpbridge/session"
)

// The tasks extension of 2026-07-28 (SEP-2663): a tools/call that takes long, or whose
// tool wants it, is answered with a handle, and its result fetched later.

const tasksExtension = "io.modelcontextprotocol/tasks"

const (
	// taskGrace is how soon a tool that wants tasks may still answer without one: what
	// comes at once needs none, and what a tool asks for before it starts is asked on
	// the request itself.
	taskGrace = 250 * time.Millisecond
	// pollEvery is how often a client should ask for a task.
	pollEvery = time.Second
)

// taskSupport is what a tool says of tasks, in execution.taskSupport.
type taskSupport uint8

const (
	taskUnsaid taskSupport = iota // a call that lasts becomes one
	taskForbidden
	taskOptional
	taskRequired
)

// readTaskSupport reads a definition that has been checked.
func readTaskSupport(definition []byte) (t taskSupport) {
	if !bytes.Contains(definition, []byte(`"taskSupport"`)) {
		return taskUnsaid
	}
	var tool struct {
		Execution struct {
			TaskSupport string `json:"taskSupport"`
		} `json:"execution"`
	}
	_ = json.Unmarshal(definition, &tool) // of another shape, it says nothing
	switch tool.Execution.TaskSupport {
	case "forbidden":
		return taskForbidden
	case "optional":
		return taskOptional
	case "required":
		return taskRequired
	}
	return taskUnsaid
}

// takesTasks tells whether the request's client knows the extension.
func (x *exchange) takesTasks() bool {
	caps := x.q.meta.caps
	if !x.modern || !bytes.Contains(caps, []byte(`"extensions"`)) {
		return false
	}
	var c struct {
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	if json.Unmarshal(caps, &c) != nil {
		return false
	}
	_, ok := c.Extensions[tasksExtension]
	return ok
}

var errNoTasks = &rpcError{
	status: http.StatusBadRequest, code: codeMissingCapability,
	message: "this needs the extension " + tasksExtension + ", which the client did not declare",
	data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tasksExtension + `":{}}}}`),
}

// plan settles when the call of a tool becomes a task. As one it has the longest
// deadline that there is, unless the client or the tool gave one.
func (x *exchange) plan(offer *session.Offer) *rpcError {
	support := derive(offer).tasks
	if !x.takesTasks() {
		if support == taskRequired && x.modern {
			return errNoTasks
		}
		return nil
	}
	x.to.asTask = x.e.limits.CallTimeoutMax
	if offer.Tool.Timeout > 0 || x.r.URL.Query().Has("timeout") {
		x.to.asTask = x.to.timeout
	}
	switch support {
	case taskUnsaid:
		x.to.keepAfter = x.e.limits.TaskAfter
	case taskOptional, taskRequired:
		x.to.keepAfter, x.to.told = taskGrace, x.to.asTask
	case taskForbidden:
	}
	return nil
}

// errKept is the outcome of a call that has become the task x.task.
var errKept = errors.New("the call has become a task")

// keep makes the call in flight a task. False when it goes on as it is.
func (x *exchange) keep(s *session.Session, c *session.Call) (o session.Outcome, done bool) {
	t, err := s.Keep(x.r.Context(), c, session.TaskTerms{
		Principal: x.principal, Now: time.Now(), Timeout: x.to.asTask, Life: x.e.limits.TaskLife,
	})
	switch {
	case errors.Is(err, session.ErrBusy):
		return o, false
	case errors.Is(err, session.ErrEnded), errors.Is(err, session.ErrStopped):
		return <-c.Done(), true
	}
	x.kept = true // the call's members lie in the body
	if err != nil {
		return session.Outcome{Err: err}, true
	}
	x.task = &t
	return session.Outcome{Err: errKept}, true
}

// created answers with the handle of x.task.
func (x *exchange) created() {
	x.typed("task", taskMembers(x.task, "working"))
}

// taskRequest answers tasks/get, tasks/update or tasks/cancel.
func (x *exchange) taskRequest() {
	if !x.takesTasks() {
		x.fail(errNoTasks)
		return
	}
	x.to.method = x.q.method // no model reads its errors
	id, ok := wire.Text(x.q.taskID)
	if !ok {
		x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: `params must have "taskId", a string`})
		return
	}
	x.named(id, func() {
		s, err := x.e.cfg.Directory.Session(x.r.Context(), x.bridge)
		if err != nil {
			x.failed(err)
			return
		}
		switch x.q.method {
		case "tasks/get":
			x.getTask(s, session.TaskID(id))
		case "tasks/update":
			x.updateTask(s, session.TaskID(id))
		case "tasks/cancel":
			if _, err := s.CancelTask(x.r.Context(), session.TaskID(id), x.principal); err != nil {
				x.failed(err)
				return
			}
			x.result()
		}
	})
}

func (x *exchange) getTask(s *session.Session, id session.TaskID) {
	t, err := s.Task(x.r.Context(), id, x.principal)
	if err != nil {
		x.failed(err)
		return
	}
	if bad := x.mayBeAsked(&t); bad != nil {
		x.fail(bad)
		return
	}
	x.result(x.detailed(&t))
}

// mayBeAsked tells what the client lacks for what the task asks for.
func (x *exchange) mayBeAsked(t *session.Task) *rpcError {
	if t.Status != session.TaskAsking {
		return nil
	}
	a, err := readInputRequired(append(appendInputs([]byte("{"), t), '}'))
	if err != nil {
		return &rpcError{status: http.StatusOK, code: codeInternal, message: err.Error()}
	}
	lacks, err := a.missing(x.q.meta.caps)
	if err != nil {
		return &rpcError{status: http.StatusOK, code: codeInternal, message: err.Error()}
	}
	if lacks == nil {
		return nil
	}
	data, _ := json.Marshal(map[string]any{"requiredCapabilities": lacks}) // maps of strings always encode
	return &rpcError{
		status: http.StatusBadRequest, code: codeMissingCapability,
		message: "the task asks for what the client did not declare", data: data,
	}
}

func (x *exchange) updateTask(s *session.Session, id session.TaskID) {
	var answers map[string]json.RawMessage
	if x.q.responses == nil || json.Unmarshal(x.q.responses, &answers) != nil || answers == nil {
		x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: `params must have "inputResponses", an object`})
		return
	}
	for key, a := range answers {
		if len(a) == 0 || a[0] != '{' {
			x.fail(&rpcError{status: http.StatusOK, code: codeInvalidParams, message: "inputResponses member " + clip(key) + " must be an object"})
			return
		}
	}
	if _, err := s.AnswerTask(x.r.Context(), id, x.principal, answers); err != nil {
		x.failed(err)
		return
	}
	x.result()
}

// detailed is a task as tasks/get shows it: members of an object.
func (x *exchange) detailed(t *session.Task) []byte {
	switch {
	case t.Status == session.TaskWorking:
		return taskMembers(t, "working")
	case t.Status == session.TaskAsking:
		return appendInputs(append(taskMembers(t, "input_required"), ','), t)
	case t.Status == session.TaskCancelled:
		return taskMembers(t, "cancelled")
	case t.Failure != nil && t.Failure.Code != 0:
		e := x.passed(&session.ProtocolError{Code: t.Failure.Code, Message: t.Failure.Message, Data: t.Failure.Data})
		b := strconv.AppendInt(append(taskMembers(t, "failed"), `,"error":{"code":`...), int64(e.code), 10)
		b = appendText(append(b, `,"message":`...), e.message)
		if e.data != nil {
			b = append(append(b, `,"data":`...), e.data...)
		}
		return append(b, '}')
	case t.Failure != nil:
		b := appendText(append(taskMembers(t, "completed"), `,"result":{"content":[{"type":"text","text":`...), t.Failure.Message)
		return append(b, `}],"isError":true,"resultType":"complete"}`...)
	}
	b := append(taskMembers(t, "completed"), `,"result":`...)
	b = append(b, t.Result[:len(t.Result)-1]...)
	if !hasMember(t.Result, "resultType") {
		b = append(x.member(b), `"resultType":"complete"`...)
	}
	return append(b, '}')
}

const taskTime = "2006-01-02T15:04:05.000Z"

// taskMembers are the members that every task has.
func taskMembers(t *session.Task, status string) []byte {
	b := appendText([]byte(`"taskId":`), string(t.ID))
	b = append(append(append(b, `,"status":"`...), status...), '"')
	if t.Message != "" {
		b = appendText(append(b, `,"statusMessage":`...), t.Message)
	}
	b = t.Created.UTC().AppendFormat(append(b, `,"createdAt":"`...), taskTime)
	b = t.Updated.UTC().AppendFormat(append(b, `","lastUpdatedAt":"`...), taskTime)
	b = strconv.AppendInt(append(b, `","ttlMs":`...), t.Expires.Sub(t.Created).Milliseconds(), 10)
	return strconv.AppendInt(append(b, `,"pollIntervalMs":`...), pollEvery.Milliseconds(), 10)
}

// appendInputs appends the member inputRequests: what is not answered yet.
func appendInputs(b []byte, t *session.Task) []byte {
	b = append(b, `"inputRequests":{`...)
	for i, in := range t.Pending() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendText(b, in.Key), ':'), in.Request...)
	}
	return append(b, '}')
}

func appendText(b []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // a string always encodes
	return append(b, quoted...)
}

// hasMember tells whether an object that has been checked has a member.
func hasMember(raw []byte, name string) (found bool) {
	s := wire.Reread(raw)
	_ = s.Object(func(n []byte) error { // what has been checked has no errors
		found = found || string(n) == name
		_, err := s.Raw()
		return err
	})
	return found
}

// maxTasks bounds the tasks that one stream listens to.
const maxTasks = 256

// taskMessage is the notification for a task that has changed; nil when there is none
// for this client.
func (x *exchange) taskMessage(s *session.Session, id session.TaskID, mark string) []byte {
	t, err := s.Task(x.r.Context(), id, x.principal)
	if err != nil || x.mayBeAsked(&t) != nil {
		return nil
	}
	b := append([]byte(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{`), x.detailed(&t)...)
	return append(append(append(b, ','), mark...), "}}"...)
}
