package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mcpbridge/session"
)

// TicketProtocol is what a ticket's text has in front as a WebSocket subprotocol.
const TicketProtocol = "mcpb.tkt."

type (
	ticketInput struct {
		Bridge session.BridgeID `path:"bridge" doc:"The bridge's ID."`
		Body   *ticketBody
	}
	ticketBody struct {
		Origin string `json:"origin,omitempty" maxLength:"300" pattern:"^[a-z][a-z0-9+.-]*://[^/?#@\\s]+$" doc:"The page's origin, such as https://app.example.com. Absent: a page of any origin that may use the server." example:"https://app.example.com"`
	}
	ticketOutput struct {
		Body ticket
	}
	ticket struct {
		Ticket      string    `json:"ticket" doc:"Good for one connection."`
		Subprotocol string    `json:"subprotocol" doc:"What to ask for beside bridge.v1 or mcp: new WebSocket(providerUrl, [\"bridge.v1\", subprotocol])."`
		Expires     time.Time `json:"expires"`
	}
)

func (s *server) registerTickets(operation func(id, method, path, summary string, status int, errs ...int) huma.Operation) {
	create := operation("createTicket", http.MethodPost, "/api/v1/bridges/{bridge}/tickets", "Create a one-time ticket", http.StatusCreated,
		http.StatusBadRequest, http.StatusNotFound)
	create.Description = "For a provider in a browser, whose WebSocket can carry no header: good for 30 seconds and one connection, which ends when the token that asked for the ticket is revoked."
	create.Metadata[scopeKey] = ScopeTokens
	create.Tags = []string{"tokens"}
	huma.Register(s.api, create, s.createTicket)
}

func (s *server) createTicket(ctx context.Context, in *ticketInput) (*ticketOutput, error) {
	b, err := s.find(ctx, in.Bridge)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: create ticket: %w", err), "path.bridge", string(in.Bridge))
	}
	origin := ""
	if in.Body != nil {
		origin = in.Body.Origin
	}
	secret, expires, err := s.Ticket(b.ID, origin, actor(ctx).Token)
	if err != nil {
		return nil, s.problem(ctx, fmt.Errorf("rest: create ticket: %w", err), "", "")
	}
	text := secret.Reveal()
	return &ticketOutput{ticket{Ticket: text, Subprotocol: TicketProtocol + text, Expires: expires.UTC()}}, nil
}
