package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// heldTool is a tool of the API's list whose definition has changed.
type heldTool struct {
	Name     string
	Provider string
	Listed   bool
	Held     struct {
		Hash         string
		Since        time.Time
		Rejected     bool
		RefusesCalls bool
		Warnings     []string
		Changes      []struct{ Path, Old, New string }
	}

	raw json.RawMessage
}

// heldFlags say where to look for changed definitions.
type heldFlags struct {
	Bridge string `arg:"" help:"The bridge's ID."`
	Kind   string `enum:"tools,prompts,resources,templates" default:"tools" help:"What to look at: tools, prompts, resources or templates of resources. Default: ${default}."`
	adminFlags
}

func (f *heldFlags) path() string { return "/api/v1/bridges/" + url.PathEscape(f.Bridge) + "/tools" }

// held reads what is held, page by page.
func (f *heldFlags) held(ctx context.Context) ([]heldTool, error) {
	var all []heldTool
	for cursor := ""; ; {
		answer, err := f.do(ctx, http.MethodGet, f.path()+"?held=true&limit=200&kind="+f.Kind+"&cursor="+url.QueryEscape(cursor), nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools      []json.RawMessage
			NextCursor string
		}
		err = json.Unmarshal(answer, &page)
		for _, raw := range page.Tools {
			t := heldTool{raw: raw}
			err = errors.Join(err, json.Unmarshal(raw, &t))
			all = append(all, t)
		}
		if err != nil {
			return nil, fmt.Errorf("the server's list of tools: %w", err)
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			return all, nil
		}
		cursor = page.NextCursor
	}
}

// print shows what has changed.
func (t *heldTool) print(w io.Writer) {
	state := "clients are listed the earlier definition"
	if !t.Listed {
		state = "not listed: it was taken off and came back with another definition"
	}
	if t.Held.RefusesCalls {
		state += "; calls are refused, for it promises more"
	}
	if t.Held.Rejected {
		state += "; rejected"
	}
	fmt.Fprintf(w, "%s of provider %s, changed %s (%s)\n", oneLine(t.Name, 200), oneLine(t.Provider, 128), t.Held.Since.Local().Format(time.DateTime), state)
	for _, c := range t.Held.Changes {
		path := c.Path
		if path == "" {
			path = "the whole"
		}
		fmt.Fprintf(w, "  %s\n", harmless(path))
		for _, side := range []struct{ sign, text string }{{"-", c.Old}, {"+", c.New}} {
			if side.text != "" {
				fmt.Fprintf(w, "  %s %s\n", side.sign, harmless(side.text))
			}
		}
	}
	for _, warning := range t.Held.Warnings {
		fmt.Fprintf(w, "  warning: %s\n", harmless(warning))
	}
	fmt.Fprintf(w, "  hash %s\n", harmless(t.Held.Hash))
}

type bridgeHeldCmd struct {
	heldFlags
}

// Run shows the changed definitions that wait for approval.
func (c *bridgeHeldCmd) Run(ctx context.Context, p *Program) error {
	all, err := c.held(ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		list := []json.RawMessage{}
		for _, t := range all {
			list = append(list, t.raw)
		}
		text, err := encode(map[string]any{"tools": list})
		if err == nil {
			_, err = fmt.Fprintf(p.Stdout, "%s\n", text)
		}
		return err
	}
	for _, t := range all {
		t.print(p.Stdout)
	}
	if len(all) == 0 {
		fmt.Fprintf(p.Stdout, "no changed definition of %s waits for approval\n", c.Kind)
	}
	return nil
}

// decisionFlags name one changed definition.
type decisionFlags struct {
	heldFlags
	Tool string `arg:"" help:"The tool's name, as clients see it."`
	Hash string `placeholder:"HEX" help:"Decide on this definition and no other, without asking: its hash, or the first 8 digits of it or more."`
	Yes  bool   `short:"y" help:"Decide on what is held now, without asking."`
}

// Validate implements kong's interface.
func (d *decisionFlags) Validate() error {
	switch {
	case d.Hash != "" && (len(d.Hash) < 8 || strings.Trim(d.Hash, "0123456789abcdef") != ""):
		return errors.New("--hash wants 8 to 64 hexadecimal digits")
	case d.Output == "json" && d.Hash == "" && !d.Yes:
		return errors.New("with -o json nobody is asked: give --hash or --yes")
	default:
		return nil
	}
}

// decide shows what has changed, asks, and does what the word says.
func (d *decisionFlags) decide(ctx context.Context, p *Program, word string) error {
	all, err := d.held(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(t heldTool) bool { return t.Name != d.Tool || !strings.HasPrefix(t.Held.Hash, d.Hash) })
	hash := d.Hash
	switch {
	case len(all) > 1:
		for _, t := range all {
			t.print(p.Stderr)
		}
		return fmt.Errorf("%d providers have changed definitions of %s; name one with --hash", len(all), harmless(d.Tool))
	case len(all) == 1:
		hash = all[0].Held.Hash
	case len(hash) < 64: // the server knows whether a whole one was decided on before
		return fmt.Errorf("no such changed definition of %s waits for approval", harmless(d.Tool))
	}
	if len(all) == 1 && d.Output == "table" {
		all[0].print(p.Stdout)
		if d.Hash == "" && !d.Yes && !ask(p, word+" it?") {
			return fmt.Errorf("nothing was done: %s waits for approval still", harmless(d.Tool))
		}
	}
	path := d.path() + "/" + url.PathEscape(d.Tool) + "/" + word + "?kind=" + d.Kind
	if _, err := d.do(ctx, http.MethodPost, path, map[string]string{"hash": hash}); err != nil {
		return err
	}
	if d.Output == "json" {
		text, err := encode(map[string]string{"tool": d.Tool, "decision": word, "hash": hash})
		if err == nil {
			_, err = fmt.Fprintf(p.Stdout, "%s\n", text)
		}
		return err
	}
	fmt.Fprintf(p.Stdout, "%s: %s\n", harmless(d.Tool), map[string]string{"approve": "approved", "reject": "rejected"}[word])
	return nil
}

// ask asks for a yes. Without an answer it is a no.
func ask(p *Program, question string) bool {
	fmt.Fprintf(p.Stderr, "%s [y/N] ", question)
	line, _ := bufio.NewReader(io.LimitReader(p.Stdin, 100)).ReadString('\n')
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes"
}

type bridgeApproveCmd struct{ decisionFlags }

// Run lists a changed definition.
func (c *bridgeApproveCmd) Run(ctx context.Context, p *Program) error {
	return c.decide(ctx, p, "approve")
}

type bridgeRejectCmd struct{ decisionFlags }

// Run leaves the earlier definition listed for good.
func (c *bridgeRejectCmd) Run(ctx context.Context, p *Program) error {
	return c.decide(ctx, p, "reject")
}
