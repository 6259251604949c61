package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"mcpbridge/session"
)

// ErrInUse: a tenant has bridges and is not deleted.
var ErrInUse = errors.New("it still has bridges")

// TenantID names a tenant: 1 to 64 of [A-Za-z0-9_-]. The empty one is that of the
// default tenant, to which everything belongs that names none; it is there without
// having been created.
type TenantID string

// Tenant is a group of bridges and the keys that may manage them.
type Tenant struct {
	ID      TenantID
	Name    string // for people; may be empty
	Created time.Time
	Updated time.Time
	Version uint64 // the ETag
}

var (
	tenantsBucket    = []byte("tenants")    // tenant → Tenant
	belongingsBucket = []byte("belongings") // tenant + bridge → empty record; none for the default tenant
)

func validTenant(id TenantID) error {
	if !session.BridgeID(id).Valid() {
		return fmt.Errorf("%.80q is not a tenant ID", string(id))
	}
	return nil
}

// Tenant: id, name, created, updated, version.
func encodeTenant(key []byte, t Tenant) []byte {
	e := newEncoder(len(t.ID) + len(t.Name) + 64)
	put(&e, t.ID)
	put(&e, t.Name)
	e.time(t.Created)
	e.time(t.Updated)
	e.uint(t.Version)
	return e.seal(key)
}

func decodeTenant(key, record []byte) (t Tenant, err error) {
	err = decode(key, record, func(d *decoder) {
		t = Tenant{ID: TenantID(d.string()), Name: d.string(), Created: d.time(), Updated: d.time(), Version: d.uint()}
	})
	return t, err
}

// hasTenant tells whether a tenant exists, as the default one always does.
func hasTenant(tx *bbolt.Tx, id TenantID) error {
	if id != "" && tx.Bucket(tenantsBucket).Get([]byte(id)) == nil {
		return fmt.Errorf("tenant %.80q: %w", string(id), ErrNotFound)
	}
	return nil
}

// CreateTenant implements Store.
func (b *Bolt) CreateTenant(ctx context.Context, t Tenant) error {
	key := []byte(t.ID)
	record := encodeTenant(key, t)
	return b.write(ctx, fmt.Sprintf("create tenant %.80q", t.ID), validTenant(t.ID), len(record),
		func(tx *bbolt.Tx) error {
			if tx.Bucket(tenantsBucket).Get(key) != nil {
				return ErrExists
			}
			return nil
		},
		func(tx *bbolt.Tx) error { return tx.Bucket(tenantsBucket).Put(key, record) })
}

// Tenant implements Store.
func (b *Bolt) Tenant(ctx context.Context, id TenantID) (t Tenant, err error) {
	err = b.read(ctx, func(tx *bbolt.Tx) (err error) {
		key := []byte(id)
		record := tx.Bucket(tenantsBucket).Get(key)
		if record == nil {
			return ErrNotFound
		}
		t, err = decodeTenant(key, record)
		return err
	})
	if err != nil {
		return Tenant{}, fmt.Errorf("store: tenant %.80q: %w", id, err)
	}
	return t, nil
}

// Tenants implements Store.
func (b *Bolt) Tenants(ctx context.Context, after TenantID, limit int) (list []Tenant, err error) {
	err = b.read(ctx, func(tx *bbolt.Tx) error {
		c := tx.Bucket(tenantsBucket).Cursor()
		k, v := c.Seek([]byte(after))
		if k != nil && string(k) == string(after) {
			k, v = c.Next()
		}
		for ; k != nil && len(list) < limit; k, v = c.Next() {
			t, err := decodeTenant(k, v)
			if err != nil {
				return fmt.Errorf("tenant %q: %w", k, err)
			}
			list = append(list, t)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: tenants: %w", err)
	}
	return list, nil
}

// DeleteTenant implements Store.
func (b *Bolt) DeleteTenant(ctx context.Context, id TenantID) error {
	var tokens []Token
	return b.write(ctx, fmt.Sprintf("delete tenant %.80q", id), validTenant(id), len(id),
		func(tx *bbolt.Tx) (err error) {
			if err := hasTenant(tx, id); err != nil {
				return err
			}
			if err := each(tx.Bucket(belongingsBucket), within(id, ""), func(_, _ []byte) error { return ErrInUse }); err != nil {
				return err
			}
			tokens, err = tokensOf(tx, "")
			return err
		},
		func(tx *bbolt.Tx) error {
			for _, t := range tokens {
				if t.Tenant != id {
					continue
				}
				if err := dropToken(tx, "", []byte(t.ID)); err != nil {
					return err
				}
			}
			return tx.Bucket(tenantsBucket).Delete([]byte(id))
		})
}

// BridgesOf implements Store. The default tenant's are those that no other has.
func (b *Bolt) BridgesOf(ctx context.Context, tenant TenantID, after session.BridgeID, limit int) (list []Bridge, err error) {
	err = b.read(ctx, func(tx *bbolt.Tx) error {
		if tenant == "" {
			return b.unowned(tx, after, limit, &list)
		}
		prefix := within(tenant, "")
		c := tx.Bucket(belongingsBucket).Cursor()
		from := within(tenant, after)
		k, _ := c.Seek(from)
		if string(k) == string(from) {
			k, _ = c.Next()
		}
		for ; len(k) > len(prefix) && string(k[:len(prefix)]) == string(prefix) && len(list) < limit; k, _ = c.Next() {
			br, err := getBridge(tx, session.BridgeID(k[len(prefix):]))
			if err != nil {
				return fmt.Errorf("bridge %q: %w", k[len(prefix):], err)
			}
			list = append(list, br)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: bridges of tenant %.80q: %w", tenant, err)
	}
	return list, nil
}

func (b *Bolt) unowned(tx *bbolt.Tx, after session.BridgeID, limit int, list *[]Bridge) error {
	c := tx.Bucket(bridgesBucket).Cursor()
	for k, v := c.Seek([]byte(after)); k != nil && len(*list) < limit; k, v = c.Next() {
		br, err := decodeBridge(k, v)
		if err != nil {
			return fmt.Errorf("bridge %q: %w", k, err)
		}
		if br.Tenant == "" && br.ID > after {
			*list = append(*list, br)
		}
	}
	return nil
}

// hasTenant is called under the mutex.
func (m *Memory) hasTenant(id TenantID) error {
	if _, known := m.tenants[id]; id != "" && !known {
		return fmt.Errorf("tenant %.80q: %w", string(id), ErrNotFound)
	}
	return nil
}

// CreateTenant implements Store.
func (m *Memory) CreateTenant(ctx context.Context, t Tenant) error {
	return m.do(ctx, fmt.Sprintf("create tenant %.80q", t.ID), func() error {
		if err := validTenant(t.ID); err != nil {
			return err
		}
		if m.hasTenant(t.ID) == nil {
			return ErrExists
		}
		t.Created, t.Updated = cloneTime(t.Created), cloneTime(t.Updated)
		m.tenants[t.ID] = t
		return nil
	})
}

// Tenant implements Store.
func (m *Memory) Tenant(ctx context.Context, id TenantID) (t Tenant, err error) {
	err = m.do(ctx, fmt.Sprintf("tenant %.80q", id), func() error {
		known := false
		if t, known = m.tenants[id]; !known {
			return ErrNotFound
		}
		return nil
	})
	return t, err
}

// Tenants implements Store.
func (m *Memory) Tenants(ctx context.Context, after TenantID, limit int) (list []Tenant, err error) {
	err = m.do(ctx, "tenants", func() error {
		for _, id := range slices.Sorted(maps.Keys(m.tenants)) {
			if id > after && len(list) < limit {
				list = append(list, m.tenants[id])
			}
		}
		return nil
	})
	return list, err
}

// DeleteTenant implements Store.
func (m *Memory) DeleteTenant(ctx context.Context, id TenantID) error {
	return m.do(ctx, fmt.Sprintf("delete tenant %.80q", id), func() error {
		if err := cmp.Or(validTenant(id), m.hasTenant(id)); err != nil {
			return err
		}
		for _, b := range m.bridges {
			if b.Tenant == id {
				return ErrInUse
			}
		}
		maps.DeleteFunc(m.tokens, func(_ string, t Token) bool { return t.Bridge == "" && t.Tenant == id })
		delete(m.tenants, id)
		return nil
	})
}

// BridgesOf implements Store.
func (m *Memory) BridgesOf(ctx context.Context, tenant TenantID, after session.BridgeID, limit int) (list []Bridge, err error) {
	err = m.do(ctx, fmt.Sprintf("bridges of tenant %.80q", tenant), func() error {
		for _, id := range slices.Sorted(maps.Keys(m.bridges)) {
			if b := m.bridges[id].Bridge; id > after && b.Tenant == tenant && len(list) < limit {
				list = append(list, cloneBridge(b))
			}
		}
		return nil
	})
	return list, err
}
