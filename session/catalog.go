package session

import (
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Offer is one Tool as the Catalog shows it.
type Offer struct {
	Tool     Tool
	Provider ProviderID

	memo atomic.Pointer[any]
}

// Memo returns what build made of the offer the first time, and the same value
// ever after: a place for an edge to keep what it derives from an immutable
// definition. Concurrent first calls may each build; one value wins.
func (o *Offer) Memo(build func() any) any {
	if v := o.memo.Load(); v != nil {
		return *v
	}
	v := build()
	if o.memo.CompareAndSwap(nil, &v) {
		return v
	}
	return *o.memo.Load()
}

// Catalog is the immutable set of offers of a bridge at one revision, sorted by
// exposed name.
type Catalog struct {
	Revision uint64
	Offers   []*Offer

	once sync.Once
	json []byte // "{…},{…}", every definition with its exposed name
	ends []int  // ends[i] is where the i-th definition ends in json
}

// Find returns the offer of that exposed name, or nil.
func (c *Catalog) Find(name string) *Offer {
	i := c.After(name, true)
	if i < len(c.Offers) && c.Offers[i].Tool.Exposed == name {
		return c.Offers[i]
	}
	return nil
}

// After returns the index of the first offer whose name is greater than name,
// or, with orEqual, not less.
func (c *Catalog) After(name string, orEqual bool) int {
	return sort.Search(len(c.Offers), func(i int) bool {
		d := strings.Compare(c.Offers[i].Tool.Exposed, name)
		return d > 0 || orEqual && d == 0
	})
}

// JSON returns the definitions of offers i to j-1, separated by commas. It is
// encoded once for the whole catalog; callers must not write to it.
func (c *Catalog) JSON(i, j int) []byte {
	c.once.Do(c.encode)
	if i >= j {
		return nil
	}
	start := 0
	if i > 0 {
		start = c.ends[i-1] + 1
	}
	return c.json[start:c.ends[j-1]]
}

func (c *Catalog) encode() {
	size := 0
	for _, o := range c.Offers {
		size += len(o.Tool.Definition) + len(o.Tool.Exposed) + 3
	}
	c.json = make([]byte, 0, size)
	c.ends = make([]int, len(c.Offers))
	for i, o := range c.Offers {
		if i > 0 {
			c.json = append(c.json, ',')
		}
		c.json = o.Tool.appendExposed(c.json)
		c.ends[i] = len(c.json)
	}
}

// appendExposed appends the definition under its exposed name: the provider's
// own bytes, unless the name differs.
func (t *Tool) appendExposed(b []byte) []byte {
	if t.Exposed == t.Name {
		return append(b, t.Definition...)
	}
	b = append(b, t.Definition[:t.NameAt]...)
	b = strconv.AppendQuote(b, t.Exposed) // of [A-Za-z0-9_.-] alone
	return append(b, t.Definition[t.NameEnd:]...)
}
