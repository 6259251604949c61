package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"mcpbridge/api/credential"
	"mcpbridge/store"
)

// adminTokenEnv holds the admin token itself. It is no flag, because others can
// see a command's flags.
const adminTokenEnv = "MCPBRIDGE_ADMIN_TOKEN"

// adminText reads the admin token that the administrator brings; empty if none.
func (c *serveConfig) adminText() (string, error) {
	text := strings.TrimSpace(os.Getenv(adminTokenEnv))
	if c.TokenFile == "" {
		return text, nil
	}
	if text != "" {
		return "", usagef("both %s and --admin-token-file are given; one is enough", adminTokenEnv)
	}
	read, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", usagef("--admin-token-file: %w", err)
	}
	if text = strings.TrimSpace(string(read)); text == "" {
		return "", usagef("--admin-token-file: %s is empty", c.TokenFile)
	}
	return text, nil
}

// provideAdminToken makes sure that the store knows an admin token. One that the
// administrator brings replaces every other, so that a lost or leaked one is
// dealt with by a restart. Without it, one is minted if the store has none, and
// returned to be shown; ok tells so.
func provideAdminToken(ctx context.Context, st store.Store, text string, now time.Time) (minted credential.Secret, ok bool, err error) {
	known, err := st.Tokens(ctx, "")
	if err != nil {
		return minted, false, err
	}
	if text == "" {
		for _, t := range known {
			if t.Kind == store.AdminToken {
				return minted, false, nil
			}
		}
		token, secret := credential.New(store.AdminToken, "", now)
		if err := st.PutToken(ctx, token); err != nil {
			return minted, false, err
		}
		return secret, true, nil
	}
	token, err := credential.FromText(text, now)
	if err != nil {
		return minted, false, usageError{fmt.Errorf("the admin token given: %w", err)}
	}
	if err := st.PutToken(ctx, token); err != nil {
		return minted, false, err
	}
	for _, t := range known {
		if t.Kind == store.AdminToken && t.ID != token.ID {
			if err := st.DeleteToken(ctx, t.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
				return minted, false, err
			}
		}
	}
	return minted, false, nil
}
