package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completed is what complete offers, without the help.
func completed(t *testing.T, words ...string) (list []string) {
	t.Helper()
	o := run(t.Context(), "", append([]string{completeWord}, words...)...)
	if o.status != exitOK || o.stderr != "" {
		t.Errorf("%v: %+v", words, o)
	}
	for line := range strings.Lines(o.stdout) {
		word, _, _ := strings.Cut(line, "\t")
		list = append(list, word)
	}
	return list
}

func TestCompletionKnowsTheGrammar(t *testing.T) {
	for _, test := range []struct {
		words []string
		want  []string
	}{
		{[]string{"restor"}, []string{"restore"}},
		{[]string{"heal"}, []string{"healthcheck"}},
		{[]string{"superv"}, nil}, // hidden
		{[]string{"bridge", "s"}, []string{"show"}},
		{[]string{"bridge", "show", "b1", "--ser"}, []string{"--server"}},
		{[]string{"bridge", "show", "b1", "--output", ""}, []string{"table", "json"}},
		{[]string{"bridge", "show", "b1", "-o", "j"}, []string{"json"}},
		{[]string{"bridge", "show", "b1", "--output", "=", "j"}, []string{"json"}}, // as bash splits it
		{[]string{"bridge", "show", "b1", "--output", "="}, []string{"table", "json"}},
		{[]string{"bridge", "show", "--output=j"}, []string{"--output=json"}},
		{[]string{"config-for", "--server", "cursor", "claude-c"}, []string{"claude-code"}}, // a flag's value is no argument
		{[]string{"serve", "--open", "--log-format", ""}, []string{"text", "json"}},
		{[]string{"serve", "--data", ""}, nil}, // the shell's files
		{[]string{"config-for", "claude"}, []string{"claude-code", "claude-desktop"}},
		{[]string{"config-for", "cursor", ""}, nil},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}},
		{[]string{"run", "--", "bri"}, nil},
		{[]string{"bridge", "no-such", "--nothing", "sh"}, []string{"show"}},
	} {
		if got := completed(t, test.words...); !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, want %q", test.words, got, test.want)
		}
	}
	if all := completed(t); len(all) < 10 || !slices.Contains(all, "serve") || slices.Contains(all, "supervise") {
		t.Errorf("commands %q", all)
	}
	if all := completed(t, "serve", "--"); !slices.Contains(all, "--listen") || !slices.Contains(all, "--help") || len(all) < 30 {
		t.Errorf("flags %q", all)
	}
	if o := run(t.Context(), "", completeWord, "restor"); !strings.HasPrefix(o.stdout, "restore\tMake a backup the store") {
		t.Errorf("help: %q", o.stdout)
	}
}

// TestShellsComplete has each shell that is installed load its script and complete.
func TestShellsComplete(t *testing.T) {
	bin := t.TempDir()
	// The test binary is the program when it is told so.
	program := "#!/bin/sh\n" + asCommand + "=1 exec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "mcpbridge"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	// What a shell does when somebody presses Tab behind "mcpbridge bridge sh", "mcpbridge
	// bridge show --output " and where it completes files.
	scripts := map[string]string{
		"bash": `source <(mcpbridge completion bash)
complete -p mcpbridge
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mcpbridge mcpbridge; echo "[${COMPREPLY[*]}]"; }
try mcpbridge bridge sh
try mcpbridge bridge show --output ''
try mcpbridge check fi
`,
		"zsh": `autoload -Uz compinit && compinit -u -D
source <(mcpbridge completion zsh)
echo "complete -o default -F ${_comps[mcpbridge]} mcpbridge"
_describe() { local -a names; names=("${(@P)2}"); echo "[${names[@]%%:*}]"; }
_files() { echo "[]"; }
try() { words=("$@"); CURRENT=$#; _mcpbridge; }
try mcpbridge bridge sh
try mcpbridge bridge show --output ''
try mcpbridge check fi
`,
		"fish": `mcpbridge completion fish | source
complete -c mcpbridge | string match -q '*__mcpbridge_complete*'; and echo 'complete -o default -F _mcpbridge mcpbridge'
function try; set -l words (complete -C "$argv" | string replace -r '\t.*' ''); echo "[$words]"; end
try 'mcpbridge bridge sh'
try 'mcpbridge bridge show --output '
try 'mcpbridge check nothing-begins-so'
`,
	}
	ran := 0
	for shell, script := range scripts {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed", shell)
			continue
		}
		ran++
		home := t.TempDir()
		c := exec.CommandContext(t.Context(), path)
		if shell == "bash" {
			c.Args = append(c.Args, "--norc", "--noprofile")
		}
		c.Dir = home
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+home)
		c.Stdin = strings.NewReader(script)
		var stderr bytes.Buffer
		c.Stderr = &stderr
		out, err := c.Output()
		want := "complete -o default -F _mcpbridge mcpbridge\n[show]\n[table json]\n[]\n"
		if shell == "fish" { // which sorts
			want = strings.Replace(want, "table json", "json table", 1)
		}
		if err != nil || string(out) != want {
			t.Errorf("%s: %v: %q, want %q\n%s", shell, err, out, want, &stderr)
		}
	}
	if ran == 0 {
		t.Error("no shell is installed: install bash")
	}
}
