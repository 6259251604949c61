package session_test

import (
	"strings"
	"testing"

	"mcpbridge/session"
)

func TestPolicyIsReadMemberByMember(t *testing.T) {
	for _, c := range []struct {
		text string
		want session.Policy
		says string
	}{
		{``, session.Policy{}, ""},
		{`{}`, session.Policy{}, ""},
		{`{"names":"reject","instances":"single","definitions":"trust"}`, session.Policy{Instances: "single", Names: "reject", Definitions: "trust"}, ""},
		{`{"team":7,"Names":"reject"}`, session.Policy{}, ""},
		{`{"names":"rejekt","instances":"reject"}`, session.Policy{Instances: "reject"}, `policy "names" is "rejekt", want one of suffix, reject`},
		{`{"definitions":null}`, session.Policy{}, `want one of pin, trust`},
		{`[]`, session.Policy{}, "JSON object"},
	} {
		got, err := session.ParsePolicy([]byte(c.text))
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v; want %+v and %q", c.text, got, err, c.want, c.says)
		}
	}
}

func TestNewestPolicyIsInForce(t *testing.T) {
	s := session.Start(session.Config{Bridge: "b", Saver: &disk{}, Policy: session.Policy{Names: session.Reject}, PolicyVersion: 3}, session.Snapshot{}, epoch)
	want := func(p session.Policy) {
		t.Helper()
		if st, err := s.Status(); err != nil || st.Policy != p {
			t.Errorf("policy %+v, %v; want %+v", st.Policy, err, p)
		}
	}
	want(session.Policy{Instances: "share", Names: "reject", Definitions: "pin"})
	s.SetPolicy(session.Policy{Instances: session.Single}, 5)
	s.SetPolicy(session.Policy{Definitions: session.Trust}, 4) // read before, told after
	want(session.Policy{Instances: "single", Names: "suffix", Definitions: "pin"})
}
