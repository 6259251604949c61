package session

// Kind says what an offer is. All kinds are kept alike.
type Kind uint8

// The kinds of offer.
const (
	KindTool     Kind = iota // named by "name"
	KindPrompt               // named by "name"
	KindResource             // named by "uri"
	KindTemplate             // named by "uriTemplate"
	NumKinds                 // how many kinds there are
)

var kindNames = [NumKinds]string{"tools", "prompts", "resources", "resource templates"}

// String is the kind's plural, for people.
func (k Kind) String() string { return kindNames[k] }

// Kinds is a set of kinds.
type Kinds uint8

// Set is the set of that kind alone.
func (k Kind) Set() Kinds { return 1 << k }

// Has tells whether a kind is in the set.
func (s Kinds) Has(k Kind) bool { return s&k.Set() != 0 }

// named is what identifies an offer among all kinds.
type named struct {
	kind Kind
	name string
}
