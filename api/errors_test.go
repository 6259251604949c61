package api_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"mcpbridge/api"
	"mcpbridge/session"
)

// TestEveryErrorHasARow: an exported Err of the rooms below api, and of api, is in
// the error table's source.
func TestEveryErrorHasARow(t *testing.T) {
	table := map[string]bool{}
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || len(lit.Elts) != 2 {
			return true
		}
		switch e := lit.Elts[0].(type) {
		case *ast.SelectorExpr:
			table[fmt.Sprint(e.X, ".", e.Sel)] = true
		case *ast.Ident:
			table["api."+e.Name] = true
		}
		return true
	})
	// Errors that never reach a peer as such: they become a message's own text.
	inner := map[string]bool{
		"schema.ErrUnsupported":   true,
		"credential.ErrMalformed": true, "credential.ErrKind": true, "credential.ErrChecksum": true, "credential.ErrShort": true,
	}
	count := 0
	for _, dir := range []string{".", "provider", "mcp", "wire", "schema", "credential", "rest", "seal", "limit", "../session", "../store", "../shard"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				for _, s := range g.Specs {
					for _, id := range s.(*ast.ValueSpec).Names {
						if !strings.HasPrefix(id.Name, "Err") {
							continue
						}
						count++
						if full := f.Name.Name + "." + id.Name; !table[full] && !inner[full] {
							t.Errorf("%s has no row in the error table", full)
						}
					}
				}
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d errors were looked at", count)
	}
}

func TestUnknownErrorsAreNotTold(t *testing.T) {
	f := api.Fault(errors.New("secret path /x"))
	if f.Status != 500 || f.Code != -32603 || f.Message != "internal error" {
		t.Errorf("%+v", f)
	}
}

func TestLimitsAreTold(t *testing.T) {
	f := api.Fault(fmt.Errorf("wrapped: %w", &session.LimitError{Limit: "frames", Max: 7, Unit: "bytes"}))
	if f.Status != 429 || f.RetryAfter == 0 || !strings.Contains(f.Message, "at most 7 bytes of frames") {
		t.Errorf("%+v", f)
	}
}
