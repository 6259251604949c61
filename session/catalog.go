package session

import (
	"encoding/json"
	"slices"
	"sort"
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

// Catalog is the immutable set of offers of a bridge at one revision.
type Catalog struct {
	Revision uint64
	// Profiles are the providers that offer something and have something to say of
	// themselves, sorted by ID.
	Profiles []Profile
	lists    [NumKinds]List
}

// Profile is a provider as clients hear of it.
type Profile struct {
	Provider ProviderID
	Title    string // may be empty
	About    About
}

// Of returns the offers of a kind.
func (c *Catalog) Of(k Kind) *List { return &c.lists[k] }

// differs are the kinds of which clients are listed something else than before.
func (c *Catalog) differs(before *Catalog) (kinds Kinds) {
	for k := range NumKinds {
		if !slices.EqualFunc(c.Of(k).Offers, before.Of(k).Offers, (*Offer).looks) {
			kinds |= k.Set()
		}
	}
	return kinds
}

// looks tells whether clients are listed the same of two offers.
func (o *Offer) looks(p *Offer) bool {
	return o == p || o.Tool.Exposed == p.Tool.Exposed && string(o.Tool.Definition) == string(p.Tool.Definition)
}

// List is a Catalog's offers of one kind, sorted by exposed name.
type List struct {
	Offers []*Offer

	once sync.Once
	json []byte // "{…},{…}", every definition with its exposed name
	ends []int  // ends[i] is where the i-th definition ends in json

	shaped sync.Map // any → *List
}

// Shaped returns the list with every definition as shape returns it, made once for a
// key. Offers are the same.
func (l *List) Shaped(key any, shape func(definition []byte) []byte) *List {
	if v, ok := l.shaped.Load(key); ok {
		return v.(*List) //nolint:forcetypeassert // the map holds nothing else
	}
	out := &List{Offers: l.Offers, ends: make([]int, len(l.Offers))}
	out.once.Do(func() {
		for i := range l.Offers {
			if i > 0 {
				out.json = append(out.json, ',')
			}
			out.json = append(out.json, shape(l.JSON(i, i+1))...)
			out.ends[i] = len(out.json)
		}
	})
	v, _ := l.shaped.LoadOrStore(key, out)
	return v.(*List) //nolint:forcetypeassert // the map holds nothing else
}

// Find returns the offer of that exposed name, or nil.
func (l *List) Find(name string) *Offer {
	i := l.After(name, true)
	if i < len(l.Offers) && l.Offers[i].Tool.Exposed == name {
		return l.Offers[i]
	}
	return nil
}

// After returns the index of the first offer whose name is greater than name,
// or, with orEqual, not less.
func (l *List) After(name string, orEqual bool) int {
	return sort.Search(len(l.Offers), func(i int) bool {
		d := strings.Compare(l.Offers[i].Tool.Exposed, name)
		return d > 0 || orEqual && d == 0
	})
}

// JSON returns the definitions of offers i to j-1, separated by commas. It is
// encoded once for the whole list; callers must not write to it.
func (l *List) JSON(i, j int) []byte {
	l.once.Do(l.encode)
	if i >= j {
		return nil
	}
	start := 0
	if i > 0 {
		start = l.ends[i-1] + 1
	}
	return l.json[start:l.ends[j-1]]
}

func (l *List) encode() {
	size := 0
	for _, o := range l.Offers {
		size += len(o.Tool.Definition) + len(o.Tool.Exposed) + 3
	}
	l.json = make([]byte, 0, size)
	l.ends = make([]int, len(l.Offers))
	for i, o := range l.Offers {
		if i > 0 {
			l.json = append(l.json, ',')
		}
		l.json = o.Tool.appendExposed(l.json)
		l.ends[i] = len(l.json)
	}
}

// appendExposed appends the definition under its exposed name: the provider's
// own bytes, unless the name differs.
func (t *Tool) appendExposed(b []byte) []byte {
	if t.Exposed == t.Name {
		return append(b, t.Definition...)
	}
	b = append(b, t.Definition[:t.NameAt]...)
	quoted, _ := json.Marshal(t.Exposed) // a string always encodes
	b = append(b, quoted...)
	return append(b, t.Definition[t.NameEnd:]...)
}
