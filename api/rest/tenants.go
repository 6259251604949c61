package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mcpbridge/session"
	"mcpbridge/store"
)

// tenant is a tenant as the API shows it.
type tenant struct {
	ID      string    `json:"id" pattern:"^[A-Za-z0-9_-]{1,64}$"`
	Name    string    `json:"name,omitempty" doc:"For people."`
	Created time.Time `json:"created"`
}

type (
	createTenantInput struct {
		Body struct {
			ID   string `json:"id" pattern:"^[A-Za-z0-9_-]{1,64}$" doc:"Names the tenant for good."`
			Name string `json:"name,omitempty" maxLength:"200" pattern:"^[^\\x00-\\x1f\\x7f]*$" doc:"For people."`
		}
	}
	tenantOutput struct {
		Body tenant
	}
	listTenantsInput struct {
		Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Tenants of one page."`
		Cursor string `query:"cursor" maxLength:"200" doc:"nextCursor of the page before; none gives the first page."`
	}
	listTenantsOutput struct {
		Body struct {
			Tenants    []tenant `json:"tenants" doc:"In the order of their IDs. The default tenant, which is always there, is not among them."`
			NextCursor string   `json:"nextCursor,omitempty" doc:"Absent on the last page."`
		}
	}
	tenantInput struct {
		Tenant store.TenantID `path:"tenant" doc:"The tenant's ID."`
	}
)

func (s *server) registerTenants(operation func(id, method, path, summary string, status int, errs ...int) huma.Operation) {
	scoped := func(op huma.Operation) huma.Operation {
		op.Metadata[scopeKey] = scopeAdmin
		op.Tags = []string{"tenants"}
		op.Security = []map[string][]string{{"admin": {}}}
		return op
	}
	huma.Register(s.api, scoped(operation("createTenant", http.MethodPost, "/api/v1/tenants", "Create a tenant", http.StatusCreated,
		http.StatusBadRequest, http.StatusConflict)), s.createTenant)
	huma.Register(s.api, scoped(operation("listTenants", http.MethodGet, "/api/v1/tenants", "List tenants", http.StatusOK)), s.listTenants)
	huma.Register(s.api, scoped(operation("getTenant", http.MethodGet, "/api/v1/tenants/{tenant}", "Read a tenant", http.StatusOK, http.StatusNotFound)), s.getTenant)
	remove := scoped(operation("deleteTenant", http.MethodDelete, "/api/v1/tenants/{tenant}", "Delete a tenant", http.StatusNoContent,
		http.StatusNotFound, http.StatusConflict))
	remove.Description = "Its keys go with it. 409 as long as it has bridges."
	huma.Register(s.api, remove, s.deleteTenant)
}

func showTenantRecord(t *store.Tenant) tenant {
	return tenant{ID: string(t.ID), Name: t.Name, Created: t.Created.UTC()}
}

func (s *server) createTenant(ctx context.Context, in *createTenantInput) (*tenantOutput, error) {
	now := s.Now().UTC()
	t := store.Tenant{ID: store.TenantID(in.Body.ID), Name: in.Body.Name, Created: now, Updated: now, Version: 1}
	err := store.ErrExists // as the default tenant always does
	if in.Body.ID != defaultTenant {
		err = s.Store.CreateTenant(ctx, t)
	}
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: create tenant: %w", err), "body.id", in.Body.ID)
	}
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelInfo, "tenant created", slog.String("tenant", in.Body.ID))
	}
	return &tenantOutput{showTenantRecord(&t)}, nil
}

func (s *server) listTenants(ctx context.Context, in *listTenantsInput) (*listTenantsOutput, error) {
	after, ok := openCursor(in.Cursor)
	if !ok {
		return nil, invalid("query.cursor", in.Cursor, "not a cursor of this API; use nextCursor as it came")
	}
	all, err := s.Store.Tenants(ctx, store.TenantID(after), in.Limit+1)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: list tenants: %w", err), "", "")
	}
	out := new(listTenantsOutput)
	out.Body.Tenants = []tenant{}
	for i := range all[:min(len(all), in.Limit)] {
		out.Body.Tenants = append(out.Body.Tenants, showTenantRecord(&all[i]))
	}
	if len(all) > in.Limit {
		out.Body.NextCursor = sealCursor(session.BridgeID(all[in.Limit-1].ID)) // it is of the same characters
	}
	return out, nil
}

func (s *server) getTenant(ctx context.Context, in *tenantInput) (*tenantOutput, error) {
	t, err := s.Store.Tenant(ctx, in.Tenant)
	if err != nil {
		return nil, s.noTenant(ctx, err, in.Tenant)
	}
	return &tenantOutput{showTenantRecord(&t)}, nil
}

func (s *server) deleteTenant(ctx context.Context, in *tenantInput) (*struct{}, error) {
	if _, err := s.Store.Tenant(ctx, in.Tenant); err != nil {
		return nil, s.noTenant(ctx, err, in.Tenant)
	}
	if err := s.Store.DeleteTenant(ctx, in.Tenant); err != nil {
		return nil, s.noTenant(ctx, err, in.Tenant)
	}
	s.Revoked(func(t store.Token) bool { return t.Bridge == "" && t.Tenant == in.Tenant })
	if s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelInfo, "tenant deleted", slog.String("tenant", string(in.Tenant)))
	}
	return nil, nil
}

func (s *server) noTenant(ctx context.Context, err error, id store.TenantID) error {
	if errors.Is(err, store.ErrNotFound) {
		return &huma.ErrorModel{Status: http.StatusNotFound, Title: http.StatusText(http.StatusNotFound), Detail: "there is no such tenant"}
	}
	return s.problem(ctx, fmt.Errorf("rest: tenant: %w", err), "path.tenant", string(id))
}
