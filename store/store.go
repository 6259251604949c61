package store

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"time"

	"mcpbridge/session"
)

// Errors that callers branch on. Engines wrap them with the operation.
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("already exists")
	ErrFenced   = errors.New("a newer lease has taken over the shard")
	ErrConflict = errors.New("changed by somebody else meanwhile")
)

// Shard numbers a slice of the Bridge IDs, from 0 to Store.Shards()-1.
type Shard int

// Epoch is a Lease's fencing number. It only grows; the first is 1.
type Epoch uint64

// ShardOf is the Shard of a Bridge in a store of n Shards: FNV-1a of its ID,
// modulo n.
func ShardOf(id session.BridgeID, n int) Shard {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return Shard(h.Sum32() % uint32(n)) //nolint:gosec // n is small and positive
}

// Bridge is the durable identity and settings of one bridge.
type Bridge struct {
	ID      session.BridgeID
	Name    string          // for people; may be empty
	Owner   string          // for people; may be empty
	Tenant  TenantID        // whose it is, for good; empty is the default tenant
	Policy  json.RawMessage // JSON object; nil means every default
	Created time.Time
	Updated time.Time
	Version uint64 // grows with each update; the ETag
}

// TokenKind says where a token opens a door.
type TokenKind string

// The kinds of token that the store keeps.
const (
	ClientToken   TokenKind = "cli" // /b/{bridge}/mcp, sse, message, health
	ProviderToken TokenKind = "prv" // /b/{bridge}/provider, health
	AdminToken    TokenKind = "adm" // /api/v1, all of it
	RESTKey       TokenKind = "pat" // /api/v1, within its tenant and its scopes
)

// Token is what the store knows of a credential: never the secret itself.
type Token struct {
	ID      string // the public part of the token's text
	Kind    TokenKind
	Bridge  session.BridgeID // empty for AdminToken and RESTKey
	Hash    [32]byte         // SHA-256 of the token's whole text
	Created time.Time
	Expires time.Time // zero means never

	Tenant TenantID // of a RESTKey; empty is the default tenant
	Name   string   // for people, and what rotation replaces; may be empty
	Scopes string   // of a RESTKey: words with a space between
	By     string   // ID of the token that asked for it; empty where none did

	// LastUsed is what TouchTokens said last; zero before. No other method writes it.
	LastUsed time.Time
}

// A Store keeps bridges and what belongs to them. All methods may be called at
// once. A method that returns an error has changed nothing; one that returns nil
// has made its change durable. A context that has ended makes a method return
// its cause; once a write is on its way to the disk it is waited for.
//
// Times come back in UTC without their monotonic part, byte slices of length
// zero as nil. What goes in and what comes out shares no memory with the store.
//
// A write whose Epoch is older than the newest one given for the bridge's Shard
// (or zero) is refused with ErrFenced.
type Store interface {
	// Shards is the number of Shards, fixed when the store was made.
	Shards() int
	// Acquire takes the Lease of a Shard: it raises the Shard's Epoch past every
	// earlier one, durably, and returns it. The embedded engines, of which one
	// process at a time holds the file, always return 1.
	Acquire(ctx context.Context, shard Shard, owner string) (Epoch, error)

	// CreateBridge writes a new bridge with its first tokens, all or nothing.
	// Its ID must be valid, and the tokens must be its own. ErrExists if the
	// bridge or a token's ID is taken, ErrNotFound if its tenant does not exist,
	// ErrFenced.
	CreateBridge(ctx context.Context, epoch Epoch, b Bridge, tokens ...Token) error
	// Bridge reads one. ErrNotFound.
	Bridge(ctx context.Context, id session.BridgeID) (Bridge, error)
	// Bridges reads up to limit bridges in the order of their IDs, from the
	// first ID greater than after.
	Bridges(ctx context.Context, after session.BridgeID, limit int) ([]Bridge, error)
	// UpdateBridge writes b over the stored bridge if that still has b's
	// Version, and returns what is now stored: b with the next Version and the
	// first Created and Tenant. ErrConflict if the Version differs, ErrNotFound,
	// ErrFenced.
	UpdateBridge(ctx context.Context, epoch Epoch, b Bridge) (Bridge, error)
	// DeleteBridge removes a bridge, its tokens, its registrations, pins and tasks,
	// and its ended sessions. ErrNotFound, ErrFenced.
	DeleteBridge(ctx context.Context, epoch Epoch, id session.BridgeID) error

	// CreateTenant writes a new tenant. ErrExists.
	CreateTenant(ctx context.Context, t Tenant) error
	// Tenant reads one; the default tenant has no record. ErrNotFound.
	Tenant(ctx context.Context, id TenantID) (Tenant, error)
	// Tenants reads up to limit tenants in the order of their IDs, from the first
	// ID greater than after.
	Tenants(ctx context.Context, after TenantID, limit int) ([]Tenant, error)
	// DeleteTenant removes a tenant that has no bridges, and its tokens. ErrInUse,
	// ErrNotFound.
	DeleteTenant(ctx context.Context, id TenantID) error
	// BridgesOf reads those of one tenant as Bridges does those of all. There are
	// none of a tenant that does not exist.
	BridgesOf(ctx context.Context, tenant TenantID, after session.BridgeID, limit int) ([]Bridge, error)

	// AddToken writes a further token of a bridge. ErrNotFound if there is no
	// such bridge, ErrExists if the token's ID is taken, ErrFenced.
	AddToken(ctx context.Context, epoch Epoch, t Token) error
	// PutToken writes a token that belongs to no bridge. It replaces one of the
	// same ID; ErrExists if that one belongs to a bridge, ErrNotFound if its
	// tenant does not exist. A token's ID has 1 to 256 bytes.
	PutToken(ctx context.Context, t Token) error
	// Token reads one by its ID. ErrNotFound.
	Token(ctx context.Context, id string) (Token, error)
	// Tokens reads those of a bridge, or of no bridge for the empty ID, in the
	// order of their IDs.
	Tokens(ctx context.Context, bridge session.BridgeID) ([]Token, error)
	// DeleteToken removes one, a bridge's or not. ErrNotFound.
	DeleteToken(ctx context.Context, id string) error

	// ExpireToken sets when a token expires. ErrNotFound.
	ExpireToken(ctx context.Context, id string, at time.Time) error
	// TouchTokens writes when tokens were last used, by their IDs. Those that do
	// not exist are left out without an error.
	TouchTokens(ctx context.Context, used map[string]time.Time) error

	// Load reads a bridge's durable state; a bridge that never saved any, or
	// that does not exist, has the zero Snapshot. Registrations come in the
	// order of their Provider, pins in that of their keys.
	Load(ctx context.Context, id session.BridgeID) (session.Snapshot, error)
	// Save writes many bridges' changes in one commit, all or nothing. All of
	// them belong to shard. Changes of bridges that do not exist are left out
	// without an error: the bridge was deleted meanwhile. A Change deletes first
	// and puts then, so that what is named in both stays. ErrFenced.
	Save(ctx context.Context, shard Shard, epoch Epoch, changes []session.Change) error

	// EndSession records that an MCP session was ended by its client, until a
	// time after which its handle is expired anyway; said twice, the later time
	// counts. For a bridge that does not exist it does nothing.
	EndSession(ctx context.Context, bridge session.BridgeID, id string, until time.Time) error
	// SessionEnded tells whether an unexpired EndSession was recorded.
	SessionEnded(ctx context.Context, bridge session.BridgeID, id string) (bool, error)

	// Secret returns the store's secret of that name, made by mint the first
	// time and the same ever after, across processes. mint must return at least
	// one byte; when two ask at once, what one of them minted is dropped. A name
	// has 1 to 256 bytes.
	Secret(ctx context.Context, name string, mint func() []byte) ([]byte, error)

	// Close ends the use of the store. It waits for writes under way; every
	// later call but Close fails.
	Close() error
}
