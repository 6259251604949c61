package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("CONFORMANCE_CHILD") != "" { // we are a child of the tests below
		os.Stdout.WriteString("hello from the child\n")
		if os.Getenv("CONFORMANCE_CHILD") == "stay" {
			<-time.After(time.Minute)
		}
		os.Exit(3)
	}
	goleak.VerifyTestMain(m)
}

func TestStopEndsTheProcess(t *testing.T) {
	t.Setenv("CONFORMANCE_CHILD", "stay")
	p, err := start(t.Context(), filepath.Join(t.TempDir(), "log"), os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	err = p.until(t.Context(), func(context.Context) bool { return strings.Contains(tail(p.log), "hello") })
	if err != nil {
		t.Error(err)
	}
	if err := p.stop(); err != nil {
		t.Errorf("stop = %v", err)
	}
	select {
	case <-p.ended:
	default:
		t.Error("the process still runs")
	}
}

func TestProcessThatEndsByItselfIsReported(t *testing.T) {
	t.Setenv("CONFORMANCE_CHILD", "leave")
	p, err := start(t.Context(), filepath.Join(t.TempDir(), "log"), os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := p.until(t.Context(), func(context.Context) bool { return false }); err == nil {
		t.Error("until waits for a process that has ended")
	}
	if err := p.stop(); err == nil || !strings.Contains(err.Error(), "hello from the child") {
		t.Errorf("stop = %v", err)
	}
}

func TestProcessThatDoesNotExist(t *testing.T) {
	if _, err := start(t.Context(), filepath.Join(t.TempDir(), "log"), "./no-such-program"); err == nil {
		t.Error("start = nil")
	}
}
