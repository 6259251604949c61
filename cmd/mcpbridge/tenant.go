package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

type tenantCmd struct {
	Create tenantCreateCmd `cmd:"" help:"Create a tenant: a group of bridges, and the keys that may manage them."`
	List   tenantListCmd   `cmd:"" help:"List the tenants, without the default one."`
	Delete tenantDeleteCmd `cmd:"" help:"Delete tenants that have no bridges, with their keys."`
}

const tenantsPath = "/api/v1/tenants"

type tenantCreateCmd struct {
	Tenant string `arg:"" help:"The tenant's ID, for good: 1 to 64 of A-Z, a-z, 0-9, _ and -."`
	Name   string `help:"A name for people."`
	adminFlags
}

// Run creates a tenant.
func (c *tenantCreateCmd) Run(ctx context.Context, p *Program) error {
	body := map[string]any{"id": c.Tenant}
	if c.Name != "" {
		body["name"] = c.Name
	}
	answer, err := c.do(ctx, http.MethodPost, tenantsPath, body)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		_, err = fmt.Fprintf(p.Stdout, "%s\n", answer)
	} else {
		_, err = fmt.Fprintf(p.Stdout, "created %s\n", c.Tenant)
	}
	return err
}

type tenantListCmd struct{ adminFlags }

// Run lists every tenant, page by page.
func (c *tenantListCmd) Run(ctx context.Context, p *Program) error {
	all := []json.RawMessage{}
	rows := [][]string{{"ID", "CREATED", "NAME"}}
	for cursor := ""; ; {
		answer, err := c.do(ctx, http.MethodGet, tenantsPath+"?limit=200&cursor="+url.QueryEscape(cursor), nil)
		if err != nil {
			return err
		}
		var page struct {
			Tenants    []json.RawMessage
			NextCursor string
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return fmt.Errorf("the server's list of tenants: %w", err)
		}
		for _, raw := range page.Tenants {
			var t struct {
				ID, Name string
				Created  time.Time
			}
			if err := json.Unmarshal(raw, &t); err != nil {
				return fmt.Errorf("the server's list of tenants: %w", err)
			}
			all = append(all, raw)
			rows = append(rows, []string{oneLine(t.ID, 64), t.Created.Local().Format(time.DateTime), oneLine(t.Name, 60)})
		}
		if page.NextCursor == "" || page.NextCursor == cursor {
			break
		}
		cursor = page.NextCursor
	}
	if c.Output == "json" {
		text, err := encode(map[string]any{"tenants": all})
		if err == nil {
			_, err = fmt.Fprintf(p.Stdout, "%s\n", text)
		}
		return err
	}
	return table(p.Stdout, rows)
}

type tenantDeleteCmd struct {
	Tenants []string `arg:"" name:"tenant" help:"The tenants' IDs."`
	adminFlags
}

// Run deletes the tenants.
func (c *tenantDeleteCmd) Run(ctx context.Context, p *Program) error {
	return c.remove(ctx, p, "deleted", tenantsPath, c.Tenants)
}
