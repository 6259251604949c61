// Package reveal shows people what models read: text that has no shape, and what has
// changed in a definition.
package reveal
