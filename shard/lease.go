package shard

import (
	"context"
	"fmt"

	"mcpbridge/store"
)

// Lease is the right to run a Shard.
type Lease struct {
	Shard store.Shard
	Epoch store.Epoch // its fencing number, checked by every write
	Owner string
}

// acquire takes the leases of every Shard of the store.
func acquire(ctx context.Context, st store.Store, owner string) ([]Lease, error) {
	leases := make([]Lease, st.Shards())
	for i := range leases {
		shard := store.Shard(i)
		epoch, err := st.Acquire(ctx, shard, owner)
		if err != nil {
			return nil, fmt.Errorf("shard: acquire %d: %w", i, err)
		}
		leases[i] = Lease{shard, epoch, owner}
	}
	return leases, nil
}
