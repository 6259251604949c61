package session

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errLost is the end of a task whose call nobody can answer any more.
var errLost = errors.New("the bridge was restarted during the call, and the provider cannot answer it any more; the outcome is unknown")

// restore starts from the tasks that were durable.
func (s *state) restore(list []Task, now time.Time) {
	s.tasks.byID = make(map[TaskID]*Task, len(list))
	var expired []TaskID
	var again []*Task // once the calls of earlier processes have their IDs
	for i := range list {
		t := &list[i]
		s.tasks.byID[t.ID] = t
		s.tasks.bytes += t.size()
		switch {
		case !now.Before(t.Expires):
			expired = append(expired, t.ID)
		case t.Status == TaskWorking && t.CallID == "":
			again = append(again, t)
		case (t.Status == TaskWorking || t.CallID != "") && !s.restoreCall(t, now):
			s.settle(t, Outcome{Err: errLost, Reason: ReasonProviderGone})
		}
	}
	for _, t := range again {
		s.callAgain(t)
	}
	if len(expired) > 0 {
		s.dropTasks(expired...)
	}
}

// restoreCall makes a call of an earlier process known again, if the instance that has
// it may come back.
func (s *state) restoreCall(t *Task, now time.Time) bool {
	prefix, id, ok := splitID(t.CallID)
	if !ok || t.Key == "" || s.calls[id] != nil {
		return false
	}
	key := absentKey{t.Provider, t.Key}
	i := s.absent[key]
	if i == nil {
		i = &Instance{s: s.s, hello: Hello{Provider: t.Provider, Key: t.Key}, leftAt: now}
		s.absent[key] = i
	}
	c := &Call{Kind: KindTool, Principal: t.Principal, Tool: t.Tool, id: id, prefix: prefix, inst: i, task: t, reply: make(chan Outcome, 1)}
	c.delivery.Store(written)
	s.calls[id] = c
	i.calls++
	s.stats.Begun.Add(1)
	if s.s.nextID.Load() < id {
		s.s.nextID.Store(id)
	}
	if s.s.earlier == nil {
		s.s.earlier = map[string]struct{}{}
	}
	s.s.earlier[prefix] = struct{}{}
	return true
}

// splitID takes apart what AppendID wrote, by this process or an earlier one.
func splitID(text string) (prefix string, id uint64, ok bool) {
	at := strings.LastIndexByte(text, '-') + 1
	id, err := strconv.ParseUint(text[at:], 10, 64)
	return text[:at], id, err == nil && at > 0 && id > 0
}

// expire gives up calls whose deadline has passed, and those of instances that have
// not come back although their provider has; it drops what has been kept long enough.
func (s *state) expire(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(s.calls)) {
		c := s.calls[id]
		switch {
		case c == nil || c.task == nil:
		case !now.Before(c.task.Deadline):
			(&abandon{c, ErrTimeout}).apply(s)
		case s.forsaken(c.inst, now):
			s.end(c, s.unanswered(c))
		}
	}
	var expired []TaskID
	for id, t := range s.tasks.byID {
		if !now.Before(t.Expires) {
			if c := s.callOf(t); c != nil {
				(&abandon{c, ErrTimeout}).apply(s)
			}
			expired = append(expired, id)
		}
	}
	if len(expired) > 0 {
		slices.SortFunc(expired, cmp.Compare)
		s.dropTasks(expired...)
	}
}

// forsaken tells whether an instance has stayed away longer than it takes to resume,
// since its provider is back in another one.
func (s *state) forsaken(i *Instance, now time.Time) bool {
	p := s.providers[i.hello.Provider]
	return i.leftAt != (time.Time{}) && p != nil && slices.ContainsFunc(p.instances, func(o *Instance) bool {
		return now.Sub(latest(o.attached, i.leftAt)) > s.limits.ResumeGrace
	})
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
