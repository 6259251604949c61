package rest_test

import (
	"net/http"
	"testing"
	"time"
)

func TestUpdateChangesWhatItNames(t *testing.T) {
	e := newEdge(t)
	b := e.create(`{"name":"Ada's","owner":"ada","policy":{"names":"reject","n":9007199254740993,"x":{"a":"<1>","b":2}}}`)
	e.now = e.now.Add(time.Hour)
	at := bridges + "/" + b.ID

	answer, text := e.do(http.MethodPatch, at, `{"owner":"","policy":{"names":null,"instances":"single","x":{"b":null}}}`, "If-Match", b.ETag)
	e.status(http.StatusOK, answer, text)
	var got bridge
	decode(t, text, &got)
	if want := `{"instances":"single","n":9007199254740993,"x":{"a":"<1>"}}`; string(got.Policy) != want {
		t.Errorf("policy %s, want %s", got.Policy, want)
	}
	if got.Name != "Ada's" || got.Owner != "" || !got.Created.Equal(b.Created) || !got.Updated.Equal(e.now) {
		t.Errorf("updated to %s", text)
	}
	if tag := answer.Header.Get("ETag"); tag == b.ETag || tag == "" {
		t.Errorf("ETag %q after %q", tag, b.ETag)
	}
	if len(e.updated) != 1 || string(e.updated[0]) != b.ID {
		t.Errorf("told of %q", e.updated)
	}

	// What was meant for an earlier state is not done.
	answer, text = e.do(http.MethodPatch, at, `{"name":"late"}`, "If-Match", b.ETag)
	e.problem(http.StatusPreconditionFailed, answer, text)
	answer, text = e.do(http.MethodPatch, at, `{"name":"any"}`, "If-Match", "*", "Content-Type", "application/merge-patch+json")
	e.status(http.StatusOK, answer, text)
	answer, text = e.do(http.MethodGet, at, "")
	e.status(http.StatusOK, answer, text)
	decode(t, text, &got)
	if got.Name != "any" {
		t.Errorf("name %q", got.Name)
	}
	answer, text = e.do(http.MethodPatch, at, `{"name":null,"policy":null}`)
	e.status(http.StatusOK, answer, text)
	got = bridge{}
	decode(t, text, &got)
	if got.Name != "" || got.Policy != nil {
		t.Errorf("null left %s", text)
	}
}

func TestUpdateThatCannotBeIsRefused(t *testing.T) {
	e := newEdge(t)
	b := e.create(`{"name":"Ada's","policy":{"names":"reject"}}`)
	at := bridges + "/" + b.ID
	for _, c := range []struct {
		target, body string
		status       int
		where        string
	}{
		{at, `{"policy":{"instances":"many"}}`, 422, "body.policy.instances"},
		{at, `{"policy":"reject"}`, 422, "body.policy"},
		{at, `{"label":"x"}`, 422, "body.label"},
		{at, `[]`, 422, "body"},
		{bridges + "/nobody", `{"name":"x"}`, 404, "path.bridge"},
	} {
		answer, text := e.do(http.MethodPatch, c.target, c.body)
		if p := e.problem(c.status, answer, text); len(p.Errors) == 0 || p.Errors[0].Location != c.where {
			t.Errorf("%s: %s, want an error at %s", c.body, text, c.where)
		}
	}
	answer, text := e.do(http.MethodPost, bridges, `{"policy":{"definitions":"perhaps"}}`)
	e.problem(422, answer, text)
	if len(e.updated) != 0 {
		t.Errorf("told of %q", e.updated)
	}
}
