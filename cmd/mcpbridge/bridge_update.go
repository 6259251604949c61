package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
)

type bridgeUpdateCmd struct {
	Bridge string  `arg:"" help:"The bridge's ID."`
	Name   *string `help:"A name for people; empty takes it away."`
	Owner  *string `help:"Whose it is, for people; empty takes it away."`
	Policy string  `placeholder:"JSON" help:"Settings to change, a JSON object: instances (share, single, reject), names (suffix, reject), definitions (pin, trust). A null is a setting's default again, and the rest stays as it is."`
	adminFlags
}

// Validate implements kong's interface.
func (c *bridgeUpdateCmd) Validate() error {
	switch {
	case c.Policy != "" && !isObject([]byte(c.Policy)):
		return errors.New("--policy is not a JSON object")
	case c.Name == nil && c.Owner == nil && c.Policy == "":
		return errors.New("nothing to change: give --name, --owner or --policy")
	default:
		return nil
	}
}

// Run changes a bridge and shows it.
func (c *bridgeUpdateCmd) Run(ctx context.Context, p *Program) error {
	body := map[string]any{}
	for key, value := range map[string]*string{"name": c.Name, "owner": c.Owner} {
		if value != nil {
			body[key] = *value
		}
	}
	if c.Policy != "" {
		body["policy"] = json.RawMessage(c.Policy)
	}
	answer, err := c.do(ctx, http.MethodPatch, "/api/v1/bridges/"+url.PathEscape(c.Bridge), body)
	if err != nil {
		return err
	}
	return c.printOne(p, answer)
}
