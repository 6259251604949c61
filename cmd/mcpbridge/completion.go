package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completeWord is the first argument with which a shell asks what could come next. It
// is in no help.
const completeWord = "__complete"

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help implements kong's interface.
func (completionCmd) Help() string {
	return "Put it where your shell reads it:\n\n" +
		"bash: echo 'source <(mcpbridge completion bash)' >> ~/.bashrc\n\n" +
		"zsh: echo 'source <(mcpbridge completion zsh)' >> ~/.zshrc, behind compinit\n\n" +
		"fish: mcpbridge completion fish > ~/.config/fish/completions/mcpbridge.fish"
}

// Run prints the script, which asks this program for every word.
func (c *completionCmd) Run(p *Program) error {
	_, err := fmt.Fprint(p.Stdout, completionScripts[c.Shell])
	return err
}

// A candidate comes as its word, a tab and its help. Where there is none, the shell
// completes names of files.
var completionScripts = map[string]string{
	"bash": `_mcpbridge() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("${line%%$'\t'*}")
    done < <("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _mcpbridge mcpbridge
`,
	"zsh": `#compdef mcpbridge
_mcpbridge() {
    local line
    local -a candidates
    while IFS= read -r line; do
        candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#candidates} )); then
        _describe mcpbridge candidates
    else
        _files
    fi
}
if [[ "${funcstack[1]}" == _mcpbridge ]]; then
    _mcpbridge "$@"
else
    compdef _mcpbridge mcpbridge
fi
`,
	"fish": `function __mcpbridge_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l candidates ($words[1] __complete $words[2..-1] 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c mcpbridge -f -a '(__mcpbridge_complete)'
`,
}

// complete prints what could stand in place of the last word, behind the others.
func (p *Program) complete(root *kong.Node, words []string) {
	for _, c := range candidates(root, words) {
		help, _, _ := strings.Cut(c.help, "\n")
		fmt.Fprintf(p.Stdout, "%s\t%s\n", c.word, strings.ReplaceAll(help, "\t", " "))
	}
}

type candidate struct{ word, help string }

func candidates(root *kong.Node, words []string) (list []candidate) {
	// bash makes words of their own of = and : within a word.
	last := ""
	if n := len(words); n > 0 {
		if words[n-1] != "=" {
			last = words[n-1]
		}
		words = slices.DeleteFunc(slices.Clone(words[:n-1]), func(w string) bool { return w == "=" })
	}
	node, given := root, 0
	var flag *kong.Flag // whose value comes next
	for _, w := range words {
		switch {
		case flag != nil:
			flag = nil
		case w == "--":
			return nil // another program's
		case strings.HasPrefix(w, "-"):
			if f := findFlag(node, w); f != nil && !f.IsBool() && !f.IsCounter() && !strings.Contains(w, "=") {
				flag = f
			}
		default:
			if child := findChild(node, w); child != nil {
				node, given = child, 0
			} else {
				given++
			}
		}
	}
	add := func(word, help string) {
		if strings.HasPrefix(word, last) {
			list = append(list, candidate{word, help})
		}
	}
	name, _, assigned := strings.Cut(last, "=")
	switch {
	case flag != nil:
		for _, value := range valuesOf(flag.Value) {
			add(value, "")
		}
	case assigned && strings.HasPrefix(last, "--"):
		if f := findFlag(node, name); f != nil {
			for _, value := range valuesOf(f.Value) {
				add(name+"="+value, "")
			}
		}
	case strings.HasPrefix(last, "-"):
		for _, f := range flagsOf(node) {
			if !f.Hidden {
				add("--"+f.Name, f.Help)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
		if given < len(node.Positional) {
			for _, value := range valuesOf(node.Positional[given]) {
				add(value, "")
			}
		}
	}
	return list
}

// valuesOf are what a flag or argument may be, where that is a choice of words.
func valuesOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}

// flagsOf are a command's flags and those of the commands above it.
func flagsOf(node *kong.Node) (list []*kong.Flag) {
	for ; node != nil; node = node.Parent {
		list = append(list, node.Flags...)
	}
	return list
}

// findFlag finds --name, --name=value or -n; nil if there is none.
func findFlag(node *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, f := range flagsOf(node) {
		if long := strings.HasPrefix(word, "--"); long && f.Name == name || !long && f.Short != 0 && string(f.Short) == name {
			return f
		}
	}
	return nil
}

func findChild(node *kong.Node, word string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == word || slices.Contains(child.Aliases, word) {
			return child
		}
	}
	return nil
}
