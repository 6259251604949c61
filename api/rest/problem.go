package rest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mcpbridge/api/wire"
)

// problem answers with the error table's row for err. where names the part of
// the request that it is about, such as "path.bridge", and value what stood
// there; both may be empty.
func (s *server) problem(ctx context.Context, err error, where, value string) error {
	fault := s.Fault(err)
	s.log(ctx, err, fault)
	p := &huma.ErrorModel{
		Status: fault.Status,
		Title:  http.StatusText(fault.Status),
		Detail: fault.Message,
	}
	if where != "" {
		p.Errors = []*huma.ErrorDetail{{Message: fault.Message, Location: where, Value: value}}
	}
	if fault.RetryAfter > 0 {
		return huma.ErrorWithHeaders(p, http.Header{"Retry-After": {strconv.Itoa(seconds(fault.RetryAfter))}})
	}
	return p
}

// invalid is the problem of a request whose part at where cannot be: as huma
// says it of what the schema alone can tell.
func invalid(where, value, message string) error {
	return &huma.ErrorModel{
		Status: http.StatusUnprocessableEntity,
		Title:  http.StatusText(http.StatusUnprocessableEntity),
		Detail: "validation failed",
		Errors: []*huma.ErrorDetail{{Message: message, Location: where, Value: value}},
	}
}

// log keeps the text of what went wrong on our side: the client is not told it.
func (s *server) log(ctx context.Context, err error, fault wire.Fault) {
	if fault.Status >= http.StatusInternalServerError && s.Log != nil {
		s.Log.LogAttrs(ctx, slog.LevelError, "provisioning request failed",
			slog.String("reason", fault.Name), slog.Any("err", err))
	}
}

// seconds rounds up: a client that waits that long has waited long enough.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// writeProblem is for answers that no operation gives.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(&huma.ErrorModel{
		Status: status,
		Title:  http.StatusText(status),
		Detail: detail,
	})
}

// maxEcho is the longest rejected value that a problem repeats, in bytes.
const maxEcho = 200

// trimProblem keeps a problem from echoing a whole body: it repeats scalars and
// short strings alone.
func trimProblem(_ huma.Context, _ string, v any) (any, error) {
	p, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	for _, e := range p.Errors {
		switch value := e.Value.(type) {
		case bool, int, float64:
		case string:
			if value == "" || len(value) > maxEcho {
				e.Value = nil
			}
		default:
			e.Value = nil
		}
	}
	return p, nil
}
