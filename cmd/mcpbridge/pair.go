package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

type pairCmd struct {
	Bridge string `arg:"" help:"The bridge's ID."`
	Name   string `help:"The name of the token that the code is swapped for: whose it is, or where it is kept."`
	adminFlags
}

// Help implements kong's interface.
func (c *pairCmd) Help() string {
	return `The code is good for one provider and ten minutes. Whoever has it gets a provider token of their own, which "mcpbridge token list" shows and "mcpbridge token revoke" ends:

  mcpbridge run --pair CODE --server https://bridge.example.com -- npx -y @modelcontextprotocol/server-everything stdio`
}

// Run makes a pairing code.
func (c *pairCmd) Run(ctx context.Context, p *Program) error {
	body := map[string]any{}
	if c.Name != "" {
		body["name"] = c.Name
	}
	answer, err := c.do(ctx, http.MethodPost, "/api/v1/bridges/"+url.PathEscape(c.Bridge)+"/pairings", body)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		_, err := fmt.Fprintf(p.Stdout, "%s\n", answer)
		return err
	}
	var made struct {
		Code    string
		Expires time.Time
	}
	if err := json.Unmarshal(answer, &made); err != nil || made.Code == "" {
		return fmt.Errorf("%s does not answer like the provisioning API", address(c.Server))
	}
	return table(p.Stdout, [][]string{
		{"code", oneLine(made.Code, 40)},
		{"good until", made.Expires.Local().Format(time.DateTime)},
	})
}

// paired is a provider token that a code was swapped for, as it is kept in a file of the
// user's alone.
type paired struct {
	ProviderURL string `json:"providerUrl"`
	Token       string `json:"token"`
}

// swap swaps a code for a provider token.
func swap(ctx context.Context, server, code string) (paired, error) {
	flags := adminFlags{Server: server} // with no token: the code is enough
	answer, err := flags.do(ctx, http.MethodPost, "/api/v1/pair", map[string]any{"code": code})
	if err != nil {
		return paired{}, err
	}
	var got paired
	if err := json.Unmarshal(answer, &got); err != nil || got.Token == "" || got.ProviderURL == "" {
		return paired{}, fmt.Errorf("%s does not answer like the provisioning API", address(server))
	}
	return got, nil
}

// pairedFile is where the token for a provider URL is kept.
func pairedFile(providerURL string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(providerURL))
	return filepath.Join(dir, "mcpbridge", "paired", hex.EncodeToString(sum[:8])+".json"), nil
}

// save keeps the token for the next start.
func (c *paired) save() error {
	path, err := pairedFile(c.ProviderURL)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	text, err := encode(c)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// loadPaired reads the token that is kept for a provider URL; empty if there is none.
func loadPaired(providerURL string) (string, error) {
	path, err := pairedFile(providerURL)
	if err != nil {
		return "", nil //nolint:nilerr // who has no such directory keeps nothing there
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var kept paired
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		return "", fmt.Errorf("the provider token that is kept in %s: %w", path, err)
	}
	if kept.ProviderURL != providerURL {
		return "", nil
	}
	return kept.Token, nil
}
