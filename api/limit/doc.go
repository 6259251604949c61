// Package limit keeps each peer to its share: how often it asks, and how much it holds
// at once, by a key such as its token or its address.
package limit
