package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type tokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Create a token of a bridge and print it, which no later command does."`
	List   tokenListCmd   `cmd:"" help:"List a bridge's tokens, without their secrets."`
	Rotate tokenRotateCmd `cmd:"" help:"Put another token in a token's place, and print it."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke tokens of a bridge, and end what is connected with them."`
}

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Create a REST key and print it, which no later command does."`
	List   keyListCmd   `cmd:"" help:"List REST keys, without their secrets."`
	Rotate keyRotateCmd `cmd:"" help:"Put another key in a key's place, and print it."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke REST keys."`
}

// tokenRecord is a token or key as the API shows it.
type tokenRecord struct {
	ID       string     `json:"id"`
	Kind     string     `json:"kind"`
	Name     string     `json:"name"`
	Tenant   string     `json:"tenant"`
	Scopes   []string   `json:"scopes"`
	Created  time.Time  `json:"created"`
	Expires  *time.Time `json:"expires"`
	LastUsed *time.Time `json:"lastUsed"`
	Token    string     `json:"token"`
}

// expiry is when what is made expires.
type expiry struct {
	ExpiresIn time.Duration `name:"expires-in" placeholder:"DURATION" help:"How long it is good, such as 720h."`
}

func (e expiry) put(body map[string]any) {
	if e.ExpiresIn != 0 {
		body["expires"] = time.Now().Add(e.ExpiresIn).UTC().Format(time.RFC3339)
	}
}

type tokenCreateCmd struct {
	Bridge string `arg:"" help:"The bridge's ID."`
	Kind   string `enum:"client,provider" default:"client" help:"For MCP clients, or for tool providers: client or provider. Default: ${default}."`
	Name   string `help:"A name for people: whose it is, or where it is kept. Two of a kind and name are good at a time."`
	expiry
	adminFlags
}

// Run creates a token.
func (c *tokenCreateCmd) Run(ctx context.Context, p *Program) error {
	body := map[string]any{"kind": c.Kind}
	if c.Name != "" {
		body["name"] = c.Name
	}
	c.put(body)
	answer, err := c.do(ctx, http.MethodPost, tokensPath(c.Bridge), body)
	if err != nil {
		return err
	}
	return c.printToken(p, answer)
}

type tokenListCmd struct {
	Bridge string `arg:"" help:"The bridge's ID."`
	adminFlags
}

// Run lists the tokens.
func (c *tokenListCmd) Run(ctx context.Context, p *Program) error {
	return c.printTokens(ctx, p, tokensPath(c.Bridge))
}

// rotation is how long an old token stays good.
type rotation struct {
	Overlap time.Duration `default:"24h" placeholder:"DURATION" help:"How long the old one stays good; 0 revokes it at once. Default: ${default}."`
}

func (r rotation) body() any { return map[string]any{"overlapSeconds": int(r.Overlap.Seconds())} }

type tokenRotateCmd struct {
	Bridge string `arg:"" help:"The bridge's ID."`
	ID     string `arg:"" name:"token" help:"The token's ID, as the list has it."`
	rotation
	adminFlags
}

// Run rotates a token.
func (c *tokenRotateCmd) Run(ctx context.Context, p *Program) error {
	answer, err := c.do(ctx, http.MethodPost, tokensPath(c.Bridge)+"/"+url.PathEscape(c.ID)+"/rotate", c.body())
	if err != nil {
		return err
	}
	return c.printToken(p, answer)
}

type tokenRevokeCmd struct {
	Bridge string   `arg:"" help:"The bridge's ID."`
	IDs    []string `arg:"" name:"token" help:"The tokens' IDs, as the list has them."`
	adminFlags
}

// Run revokes the tokens.
func (c *tokenRevokeCmd) Run(ctx context.Context, p *Program) error {
	return c.remove(ctx, p, "revoked", tokensPath(c.Bridge), c.IDs)
}

type keyCreateCmd struct {
	Tenant string   `placeholder:"ID" help:"The tenant within which it may act. Default: that of the asking key, or the default tenant."`
	Name   string   `help:"A name for people: whose it is, or where it is kept."`
	Scopes []string `name:"scope" enum:"bridges:read,bridges:write,tokens:write" placeholder:"SCOPE" help:"What it may do: bridges:read, bridges:write or tokens:write. May be repeated. Default: all that the asking key may."`
	expiry
	Never bool `name:"never-expires" help:"It does not expire. For administrators. Default: it is good for 90 days."`
	adminFlags
}

// Run creates a key.
func (c *keyCreateCmd) Run(ctx context.Context, p *Program) error {
	body := map[string]any{}
	for key, value := range map[string]string{"tenant": c.Tenant, "name": c.Name} {
		if value != "" {
			body[key] = value
		}
	}
	if len(c.Scopes) > 0 {
		body["scopes"] = c.Scopes
	}
	if c.Never {
		body["neverExpires"] = true
	}
	c.put(body)
	answer, err := c.do(ctx, http.MethodPost, keysPath, body)
	if err != nil {
		return err
	}
	return c.printToken(p, answer)
}

type keyListCmd struct {
	Tenant string `placeholder:"ID" help:"Only those of this tenant."`
	adminFlags
}

// Run lists the keys.
func (c *keyListCmd) Run(ctx context.Context, p *Program) error {
	path := keysPath
	if c.Tenant != "" {
		path += "?tenant=" + url.QueryEscape(c.Tenant)
	}
	return c.printTokens(ctx, p, path)
}

type keyRotateCmd struct {
	ID string `arg:"" name:"key" help:"The key's ID, as the list has it."`
	rotation
	adminFlags
}

// Run rotates a key.
func (c *keyRotateCmd) Run(ctx context.Context, p *Program) error {
	answer, err := c.do(ctx, http.MethodPost, keysPath+"/"+url.PathEscape(c.ID)+"/rotate", c.body())
	if err != nil {
		return err
	}
	return c.printToken(p, answer)
}

type keyRevokeCmd struct {
	IDs []string `arg:"" name:"key" help:"The keys' IDs, as the list has them."`
	adminFlags
}

// Run revokes the keys.
func (c *keyRevokeCmd) Run(ctx context.Context, p *Program) error {
	return c.remove(ctx, p, "revoked", keysPath, c.IDs)
}

const keysPath = "/api/v1/keys"

func tokensPath(bridge string) string { return "/api/v1/bridges/" + url.PathEscape(bridge) + "/tokens" }

// remove deletes what has these IDs, in their order, up to the first that cannot be.
func (c *adminFlags) remove(ctx context.Context, p *Program, done, path string, ids []string) error {
	for _, id := range ids {
		if _, err := c.do(ctx, http.MethodDelete, path+"/"+url.PathEscape(id), nil); err != nil {
			return fmt.Errorf("%s: %w", harmless(id), err)
		}
		if c.Output == "table" {
			fmt.Fprintf(p.Stdout, "%s %s\n", done, id)
		}
	}
	return nil
}

// printToken prints a token that was made, with its secret.
func (c *adminFlags) printToken(p *Program, answer []byte) error {
	if c.Output == "json" {
		_, err := fmt.Fprintf(p.Stdout, "%s\n", answer)
		return err
	}
	var t tokenRecord
	if err := json.Unmarshal(answer, &t); err != nil || t.ID == "" {
		return fmt.Errorf("%s does not answer like the provisioning API", address(c.Server))
	}
	var rows [][]string
	for _, row := range [][]string{
		{"id", t.ID},
		{"kind", t.Kind},
		{"name", t.Name},
		{"tenant", t.Tenant},
		{"scopes", strings.Join(t.Scopes, " ")},
		{"expires", dateTime(t.Expires)},
		{"token", t.Token},
	} {
		if row[1] != "" {
			rows = append(rows, []string{row[0], oneLine(row[1], 2000)})
		}
	}
	return table(p.Stdout, rows)
}

// printTokens reads a list of tokens and prints it.
func (c *adminFlags) printTokens(ctx context.Context, p *Program, path string) error {
	answer, err := c.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		_, err := fmt.Fprintf(p.Stdout, "%s\n", answer)
		return err
	}
	var page struct{ Tokens []tokenRecord }
	if err := json.Unmarshal(answer, &page); err != nil {
		return fmt.Errorf("the server's list of tokens: %w", err)
	}
	rows := [][]string{{"ID", "KIND", "TENANT", "EXPIRES", "LAST USED", "SCOPES", "NAME"}}
	for i := range page.Tokens {
		t := &page.Tokens[i]
		rows = append(rows, []string{
			oneLine(t.ID, 64), oneLine(t.Kind, 20), oneLine(t.Tenant, 64), dateTime(t.Expires), dateTime(t.LastUsed),
			oneLine(strings.Join(t.Scopes, " "), 100), oneLine(t.Name, 60),
		})
	}
	return table(p.Stdout, rows)
}

func dateTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Local().Format(time.DateTime)
}
