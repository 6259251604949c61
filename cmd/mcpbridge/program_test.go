package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	// The environment of whoever runs the tests must not steer them.
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "MCPBRIDGE_") {
			_ = os.Unsetenv(name)
		}
	}
	code := m.Run()
	noRedirects.CloseIdleConnections()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// outcome is what a command left behind.
type outcome struct {
	status         int
	stdout, stderr string
}

// run runs a whole command.
func run(ctx context.Context, stdin string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	status := Program{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr}.Run(ctx, args)
	return outcome{status, stdout.String(), stderr.String()}
}

func (o outcome) want(t *testing.T, status int, stdout, stderr string) {
	t.Helper()
	if o.status != status {
		t.Errorf("exit status %d, want %d", o.status, status)
	}
	if !regexp.MustCompile(`(?s)^` + stdout + `$`).MatchString(o.stdout) {
		t.Errorf("stdout %q, want %q", o.stdout, stdout)
	}
	if !regexp.MustCompile(`(?s)^` + stderr + `$`).MatchString(o.stderr) {
		t.Errorf("stderr %q, want %q", o.stderr, stderr)
	}
}

func TestVersionIsOneLine(t *testing.T) {
	run(t.Context(), "", "version").want(t, exitOK, `mcpbridge \S+ commit \S+ go1\.\S+ \w+/\w+\n`, ``)
}

func TestHelpNamesTheEnvironment(t *testing.T) {
	for _, command := range [][]string{
		{"serve"},
		{"demo"},
		{"tools"},
		{"call"},
		{"config-for"},
		{"backup"},
		{"restore"},
		{"check"},
		{"healthcheck"},
		{"bridge", "create"},
		{"bridge", "list"},
		{"bridge", "show"},
		{"bridge", "delete"},
		{"bridge", "held"},
		{"bridge", "approve"},
		{"bridge", "reject"},
	} {
		o := run(t.Context(), "", append(command, "--help")...)
		o.want(t, exitOK, `.*`, ``)
		// Every flag but --help, with the lines that belong to it.
		flags := regexp.MustCompile(`(?m)^ +(?:-\w, +)?--[a-z]`).FindAllStringIndex(o.stdout, -1)
		for i, at := range flags {
			end := len(o.stdout)
			if i+1 < len(flags) {
				end = flags[i+1][0]
			}
			if text := o.stdout[at[0]:end]; !strings.Contains(text, "--help") && !strings.Contains(text, "$MCPBRIDGE_") {
				t.Errorf("%v: no environment variable in %q", command, text)
			}
		}
		if len(flags) < 2 && command[0] != "healthcheck" {
			t.Errorf("%v: found %d flags", command, len(flags))
		}
	}
}

func TestWrongUseIsStatus2(t *testing.T) {
	missing := t.TempDir() + "/token"
	for name, c := range map[string]struct {
		args   []string
		stderr string
	}{
		"nothing":               {nil, `.*expected one of.*`},
		"unknown command":       {[]string{"fly"}, `.*fly.*`},
		"unknown flag":          {[]string{"serve", "--fly"}, `.*--fly.*`},
		"open to the world":     {[]string{"serve", "--open", "--listen", "0.0.0.0:0"}, `.*--open.*loopback.*0\.0\.0\.0:0.*`},
		"open on every address": {[]string{"serve", "--open", "--listen", ":0"}, `.*--open.*loopback.*`},
		"open by name":          {[]string{"serve", "--open", "--listen", "bridge.example:0"}, `.*--open.*loopback.*`},
		"no public URL":         {[]string{"serve", "--listen", "0.0.0.0:0"}, `.*--public-url.*`},
		"bad public URL":        {[]string{"serve", "--public-url", "bridge.example"}, `.*--public-url is "bridge\.example".*`},
		"no port":               {[]string{"serve", "--listen", "127.0.0.1"}, `.*--listen is "127\.0\.0\.1".*`},
		"demo behind a token":   {[]string{"serve", "--demo"}, `.*--demo needs --open.*`},
		"bad origin":            {[]string{"serve", "--allow-origin", "app.example"}, `.*--allow-origin is "app\.example".*`},
		"bad proxy":             {[]string{"serve", "--trusted-proxy", "10.0.0.0/99"}, `.*--trusted-proxy is "10\.0\.0\.0/99".*`},
		"log level":             {[]string{"serve", "--log-level", "loud"}, `.*--log-level.*`},
		"size":                  {[]string{"serve", "--max-frame", "8 parsecs"}, `.*8 parsecs.*`},
		"no calls":              {[]string{"serve", "--max-calls", "0"}, `.*--max-calls is 0, want at least 1.*`},
		"no requests":           {[]string{"serve", "--max-token-requests", "0"}, `.*--max-token-requests: "0" is no limit: want a number of at least 1, off or auto.*`},
		"small budget":          {[]string{"serve", "--memory-budget", "1MiB"}, `.*--memory-budget is 1MiB, want at least the 32MiB that four of the largest messages have.*`},
		"small frame":           {[]string{"serve", "--max-frame", "100"}, `.*--max-frame is 100, want 1KiB.*`},
		"timeout over its max":  {[]string{"serve", "--call-timeout", "2h"}, `.*--call-timeout is 2h.*--call-timeout-max.*`},
		"no token file":         {[]string{"serve", "--listen", "127.0.0.1:0", "--admin-token-file", missing}, `.*--admin-token-file.*no such file.*`},
		"no tool":               {[]string{"call", "b"}, `.*<tool>.*`},
		"arguments":             {[]string{"call", "b", "t", "[1]"}, `.*not a JSON object.*`},
		"arguments cut":         {[]string{"call", "b", "t", `{"a":`}, `.*not a JSON object.*`},
		"timeout":               {[]string{"call", "b", "t", "--timeout", "1500ms"}, `.*--timeout is 1\.5s, want whole seconds.*`},
		"bridge":                {[]string{"tools", "a/b"}, `.*neither a bridge ID nor a URL.*`},
		"bridge URL":            {[]string{"tools", "ftp://host/b/x"}, `.*not an http or https URL.*`},
		"policy":                {[]string{"bridge", "create", "--policy", "reject"}, `.*--policy is not a JSON object.*`},
		"nothing to change":     {[]string{"bridge", "update", "b"}, `.*nothing to change.*--policy.*`},
		"short hash":            {[]string{"bridge", "approve", "b", "t", "--hash", "1234"}, `.*--hash wants 8 to 64.*`},
		"nobody to ask":         {[]string{"bridge", "reject", "b", "t", "-o", "json"}, `.*--hash or --yes.*`},
		"server":                {[]string{"bridge", "list", "--server", "localhost"}, `.*--server is .*http or https.*`},
		"output":                {[]string{"bridge", "list", "-o", "xml"}, `.*--output.*`},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t.Context(), "", c.args...)
			o.want(t, exitUsage, ``, `mcpbridge: `+c.stderr)
		})
	}
}

func TestFlagsComeFromTheEnvironment(t *testing.T) {
	t.Setenv("MCPBRIDGE_LISTEN", "0.0.0.0:1")
	t.Setenv("MCPBRIDGE_OPEN", "true")
	run(t.Context(), "", "serve").want(t, exitUsage, ``, `.*--open.*0\.0\.0\.0:1.*`)
}

func TestSizesAreReadAndWrittenWithUnits(t *testing.T) {
	for text, want := range map[string]byteSize{
		"0": 0, "17": 17, "17B": 17, "8MiB": 8 << 20, "8 MiB": 8 << 20, "256KiB": 256 << 10, "1GiB": 1 << 30,
		"8MB": 8_000_000, "1kB": 1000,
	} {
		if got, err := parseByteSize(text); err != nil || got != want {
			t.Errorf("%q = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "8mib", "9999999999GiB", "1 2"} {
		if got, err := parseByteSize(text); err == nil {
			t.Errorf("%q = %d, want an error", text, got)
		}
	}
	for n, want := range map[byteSize]string{0: "0", 1000: "1000", 1 << 10: "1KiB", 8 << 20: "8MiB", 1<<20 + 1: "1048577", 3 << 29: "1536MiB"} {
		if got := n.String(); got != want {
			t.Errorf("%d is %q, want %q", int64(n), got, want)
		}
	}
}

func TestLimitsOfPeersAreNumbersOrWords(t *testing.T) {
	for text, want := range map[string]int{"auto": 0, "off": -1, "1": 1, "5000": 5000} {
		var c commands
		parser, err := kong.New(&c, defaults(), kong.TypeMapper(byteSizeType, kong.MapperFunc(decodeByteSize)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = parser.Parse([]string{"serve", "--max-address-requests", text})
		if got := c.Serve.Limits.limits().AddressRequests; err != nil || got != want {
			t.Errorf("%q = %d, %v, want %d", text, got, err, want)
		}
	}
}
