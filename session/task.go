package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// TaskID names a Task: 26 characters of base32, unguessable (128 bits).
type TaskID string

// Task is the durable record of a call that outlives its request (MCP extension
// io.modelcontextprotocol/tasks). Raw members are single JSON values.
type Task struct {
	ID        TaskID
	Principal string // who made the call; nobody else may see the task
	Tool      string // exposed name
	Created   time.Time
	Updated   time.Time
	Expires   time.Time // when the record is dropped
	Deadline  time.Time // when its call is given up

	Status  TaskStatus
	Message string          // for people, about the status; may be empty
	Inputs  []TaskInput     // what was asked of the client; with TaskAsking some are not answered
	State   json.RawMessage // what the provider wants to see again with the answers, a JSON string; or nil
	Result  json.RawMessage // TaskDone: the provider's result, an object; or nil
	Failure *TaskFailure    // TaskDone: what there is instead of a result

	// What it takes to know the call again, and to make it again.
	Provider      ProviderID
	Key           string // of the instance that has the call: see Hello.Key
	CallID        string // as AppendID writes it; empty while no call is in flight
	Arguments     json.RawMessage
	ClientName    json.RawMessage
	ClientVersion json.RawMessage
	Capabilities  json.RawMessage
}

// TaskStatus is how far a Task is.
type TaskStatus uint8

// The states of a Task. The last two are final.
const (
	TaskWorking   TaskStatus = iota // its call is in flight
	TaskAsking                      // the provider waits for the client's answers
	TaskDone                        // there is a Result or a Failure
	TaskCancelled                   // the client wanted no more of it
	NumTaskStatus
)

// TaskInput is one thing that a provider asked the client of a Task for.
type TaskInput struct {
	Key     string          // under which the client answers; never used twice in a Task
	Own     string          // under which the provider asked
	Request json.RawMessage // an object with method and params
	Answer  json.RawMessage // nil until there is one

	ask *Ask // of a call that is still in flight; not durable, for neither is its call
}

// TaskFailure is why a call has no result.
type TaskFailure struct {
	Reason  Reason
	Code    int // of a JSON-RPC error; 0 for an end that a model should read about
	Message string
	Data    json.RawMessage // of a JSON-RPC error; may be nil
}

// Final tells whether the task will not change any more.
func (t *Task) Final() bool { return t.Status >= TaskDone }

// Pending are the inputs that are not answered.
func (t *Task) Pending() (list []TaskInput) {
	for _, in := range t.Inputs {
		if in.Answer == nil {
			list = append(list, in)
		}
	}
	return list
}

func (t *Task) size() int {
	n := len(t.Arguments) + len(t.Result) + len(t.State) + len(t.Capabilities) + 1024
	for _, in := range t.Inputs {
		n += len(in.Request) + len(in.Answer)
	}
	return n
}

// tasks are the tasks of a bridge.
type tasks struct {
	byID  map[TaskID]*Task
	bytes int // of all of them
}

// TaskTerms are what a call is kept under.
type TaskTerms struct {
	Principal string
	Now       time.Time
	Timeout   time.Duration // of the call, from now
	Life      time.Duration // of the record, from now
}

// Keep makes a call that is in flight a Task, and returns it once it is durable: the
// call has no Outcome any more, and needs nobody to wait for it. The memory of its raw
// members must not be used again. ErrEnded when the call has ended, so that its Outcome
// is there; a [LimitError] when the bridge has too many tasks: the call goes on as it
// was. ErrStopped and other errors mean that the session ended, or ctx, whose end undoes
// nothing.
func (s *Session) Keep(ctx context.Context, c *Call, terms TaskTerms) (Task, error) {
	t := &Task{
		ID: TaskID(NewBridgeID()), Principal: terms.Principal, Tool: c.Tool,
		Created: terms.Now, Updated: terms.Now, Expires: terms.Now.Add(terms.Life), Deadline: terms.Now.Add(terms.Timeout),
		Arguments:  slices.Clone(c.Arguments),
		ClientName: slices.Clone(c.Meta.ClientName), ClientVersion: slices.Clone(c.Meta.ClientVersion),
		Capabilities: slices.Clone(c.Meta.Capabilities),
	}
	return s.askTask(ctx, func(reply chan<- taskReply) command { return &keep{call: c, task: t, reply: reply} })
}

// Task returns a task as it is durable now. ErrUnknownTask when the principal has none
// of that ID, a [LimitError] when too many wait for a store that does not write, as for
// the two that follow.
func (s *Session) Task(ctx context.Context, id TaskID, principal string) (Task, error) {
	return s.askTask(ctx, func(reply chan<- taskReply) command { return &getTask{id, principal, reply} })
}

// AnswerTask gives a task answers to what it asks for, by key; those to what is not
// asked are left out. Once all are there, the call is made again. It returns when that
// is durable. ErrUnknownTask.
func (s *Session) AnswerTask(ctx context.Context, id TaskID, principal string, answers map[string]json.RawMessage) (Task, error) {
	return s.askTask(ctx, func(reply chan<- taskReply) command {
		return &answerTask{getTask{id, principal, reply}, answers}
	})
}

// CancelTask ends a task that is not final, and tells the provider of it. It returns
// when that is durable. ErrUnknownTask.
func (s *Session) CancelTask(ctx context.Context, id TaskID, principal string) (Task, error) {
	return s.askTask(ctx, func(reply chan<- taskReply) command { return &cancelTask{id, principal, reply} })
}

type taskReply struct {
	task Task
	err  error
}

func (s *Session) askTask(ctx context.Context, c func(reply chan<- taskReply) command) (Task, error) {
	reply := make(chan taskReply, 1)
	if err := s.do(c(reply)); err != nil {
		return Task{}, err
	}
	select {
	case r := <-reply:
		return r.task, r.err
	case <-ctx.Done(): // a store that fails may keep us waiting
		return Task{}, context.Cause(ctx)
	}
}

type keep struct {
	call  *Call
	task  *Task
	reply chan<- taskReply
}

type getTask struct {
	id        TaskID
	principal string
	reply     chan<- taskReply
}

type answerTask struct {
	getTask
	answers map[string]json.RawMessage
}

type cancelTask getTask

func (k *keep) apply(s *state) {
	c, t := k.call, k.task
	switch {
	case s.stopped:
		k.reply <- taskReply{err: ErrStopped}
		return
	case s.calls[c.id] != c:
		k.reply <- taskReply{err: ErrEnded}
		return
	case len(s.tasks.byID) >= s.limits.Tasks:
		k.reply <- taskReply{err: &LimitError{Limit: "tasks on a bridge", Max: s.limits.Tasks}}
		return
	case s.tasks.bytes+t.size() > s.limits.TaskBytes:
		k.reply <- taskReply{err: &LimitError{Limit: "all tasks of a bridge", Max: s.limits.TaskBytes, Unit: "bytes"}}
		return
	}
	s.tasks.byID[t.ID] = t
	s.tasks.bytes += t.size()
	s.given(c, t)
	s.replyTask(t, k.reply)
}

// given notes who has a task's call.
func (s *state) given(c *Call, t *Task) {
	c.task = t
	t.Status, t.Provider, t.Key, t.CallID = TaskWorking, c.inst.provider.id, c.inst.hello.Key, string(c.AppendID(nil))
	if c.parked() {
		t.CallID = "" // nobody knows it: another process makes it anew
	}
	s.putTask(t)
}

// replyTask answers once the task is durable as it is now.
func (s *state) replyTask(t *Task, reply chan<- taskReply) {
	now := t.copy()
	s.later(func(err error) { reply <- taskReply{now, err} })
}

// copy shares raw members, which are not changed, and no lists.
func (t *Task) copy() Task {
	c := *t
	c.Inputs = slices.Clone(t.Inputs)
	return c
}

// putTask makes the task durable as it is now, and then tells the streams that listen
// to it.
func (s *state) putTask(t *Task) {
	s.seq++
	s.s.cfg.Saver.Save(s.s, s.seq, Change{Bridge: s.s.cfg.Bridge, Revision: s.revision, PutTasks: []Task{t.copy()}})
	s.later(func(err error) {
		if err != nil {
			return
		}
		for w := range s.watches {
			w.tellTask(t.ID)
		}
	})
}

func (s *state) dropTasks(ids ...TaskID) {
	for _, id := range ids {
		s.tasks.bytes -= s.tasks.byID[id].size()
		delete(s.tasks.byID, id)
	}
	s.seq++
	s.s.cfg.Saver.Save(s.s, s.seq, Change{Bridge: s.s.cfg.Bridge, Revision: s.revision, DropTasks: ids})
}

// maxWaits bounds the requests about tasks that wait until something is durable.
const maxWaits = 1024

// find returns the principal's task, or nil having answered.
func (g *getTask) find(s *state) *Task {
	if s.stopped {
		g.reply <- taskReply{err: ErrStopped}
		return nil
	}
	t := s.tasks.byID[g.id]
	switch {
	case t == nil || t.Principal != g.principal:
		g.reply <- taskReply{err: ErrUnknownTask}
	case len(s.waits) >= maxWaits:
		g.reply <- taskReply{err: &LimitError{Limit: "requests that wait for the store", Max: maxWaits}}
	default:
		return t
	}
	return nil
}

func (g *getTask) apply(s *state) {
	if t := g.find(s); t != nil {
		s.replyTask(t, g.reply)
	}
}

func (a *answerTask) apply(s *state) {
	t := a.find(s)
	if t == nil {
		return
	}
	if t.Status == TaskAsking && s.takeAnswers(t, a.answers) {
		t.Updated = s.s.cfg.Clock()
		switch {
		case len(t.Pending()) > 0:
			s.putTask(t)
		case s.callOf(t) != nil: // it goes on with the answers
			t.Status = TaskWorking
			s.putTask(t)
		default:
			s.callAgain(t)
		}
	}
	s.replyTask(t, a.reply)
}

func (x *cancelTask) apply(s *state) {
	g := (*getTask)(x)
	t := g.find(s)
	if t == nil {
		return
	}
	if c := s.callOf(t); c != nil {
		(&abandon{c, ErrCancelled}).apply(s)
	} else if t.Status == TaskAsking {
		s.settle(t, Outcome{Err: ErrCancelled, Reason: ReasonCancelled})
	}
	s.replyTask(t, g.reply)
}

// callOf is the call that a task waits for.
func (s *state) callOf(t *Task) *Call {
	for _, c := range s.calls {
		if c.task == t {
			return c
		}
	}
	return nil
}

// progress takes what a provider says on the way as the task's message. It is not
// durable: nobody needs it after a restart.
func (t *Task) progress(e Event) {
	var text string
	if e.Kind == EventProgress && e.Message != nil && json.Unmarshal(e.Message, &text) == nil {
		t.Message = text
	}
}

// settle gives a task the outcome of its call.
func (s *state) settle(t *Task, o Outcome) {
	if o.Reason == ReasonShutDown || o.Reason == ReasonFenced {
		return // its record stays as it is: whoever goes on with the bridge finds it
	}
	before := t.size()
	t.Updated, t.Message, t.CallID = s.s.cfg.Clock(), "", ""
	err := o.Err
	if err == nil {
		raw := slices.Clone(o.Result.Raw)
		o.Result.Release()
		switch {
		case s.tasks.bytes+len(raw) > s.limits.TaskBytes:
			err = &LimitError{Limit: "all tasks of a bridge", Max: s.limits.TaskBytes, Unit: "bytes"}
		case o.Result.Asks:
			err = t.ask(raw)
		default:
			t.Status, t.Result = TaskDone, raw
		}
	}
	if err != nil {
		t.fail(o.Reason, err)
	}
	if t.Final() {
		t.Inputs, t.State, t.Arguments = nil, nil, nil
	}
	s.tasks.bytes += t.size() - before
	s.putTask(t)
}

func (t *Task) fail(reason Reason, err error) {
	t.Status, t.Message = TaskDone, err.Error()
	if reason == ReasonCancelled {
		t.Status = TaskCancelled
		return
	}
	t.Failure = &TaskFailure{Reason: reason, Message: err.Error()}
	if p, ok := errors.AsType[*ProtocolError](err); ok {
		t.Message = p.Message
		t.Failure.Code, t.Failure.Message, t.Failure.Data = p.Code, p.Message, slices.Clone(p.Data)
	} else if errors.Is(err, ErrBadResult) {
		t.Failure.Code = -32603
	}
}
