// Package demo is the tools of the demo provider: a text, a sum, a durable
// counter, a slow job that reports progress, and an image. Between them they
// show each thing that a provider can do.
package demo
