package rest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"mcpbridge/api/wire"
)

// backupWrite is how long the reader of a backup may take for each piece of it.
const (
	backupWrite = 30 * time.Second
	backupPiece = 256 << 10 // bytes
)

// registerBackup adds the operation that reads a whole store, if there is one that can
// be read so.
func (s *server) registerBackup(operation func(id, method, path, summary string, status int, errs ...int) huma.Operation) {
	if s.Backup == nil {
		return
	}
	op := operation("backup", http.MethodGet, "/api/v1/backup", "Take a backup", http.StatusOK,
		http.StatusTooManyRequests, http.StatusInsufficientStorage)
	op.Description = "The whole store as it is at one moment, a file for `mcpbridge restore`; all that was acknowledged before is in it. " +
		"Keep it as you keep the store: it has the keys that seal sessions. One at a time; 507 where the server's disk has no room for it."
	op.Metadata[scopeKey] = scopeAdmin // it is every tenant's
	op.Security = []map[string][]string{{"admin": {}}}
	op.Responses = map[string]*huma.Response{"200": {
		Description: "The store's file.",
		Content:     map[string]*huma.MediaType{backupType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
		Headers:     map[string]*huma.Param{"Content-Length": {Schema: &huma.Schema{Type: huma.TypeInteger}, Description: "Bytes of the file."}},
	}}
	huma.Register(s.api, op, s.backup)
}

const backupType = "application/octet-stream"

func (s *server) backup(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	began := s.Now()
	file, size, err := s.Backup(ctx)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: backup: %w", err), "", "")
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer func() { _ = file.Close() }()
		_, w := humachi.Unwrap(hctx)
		h := w.Header()
		h.Set("Content-Type", backupType)
		h.Set("Content-Length", strconv.FormatInt(size, 10))
		h.Set("Content-Disposition", `attachment; filename="mcpbridge-`+began.UTC().Format("20060102T150405Z")+`.db"`)
		for left := size; left > 0; {
			wire.WriteBy(w, time.Now().Add(backupWrite))
			n, err := io.CopyN(w, file, min(left, backupPiece))
			if left -= n; err != nil {
				s.log(ctx, fmt.Errorf("rest: backup, with %d of %d bytes to come: %w", left, size, err), s.Fault(err))
				panic(http.ErrAbortHandler) // so that nobody takes it for whole
			}
		}
		wire.WriteBy(w, time.Time{})
		if s.Log != nil {
			s.Log.LogAttrs(ctx, slog.LevelInfo, "backup taken", slog.Int64("bytes", size), slog.Duration("took", s.Now().Sub(began)))
		}
	}}, nil
}
